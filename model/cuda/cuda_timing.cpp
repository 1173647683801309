// How long the device takes for a batch, apart from the host: what benches ask of CudaForward.
#include <algorithm>

#include "ipc/base/check.hpp"
#include "model/cuda/cuda_forward.hpp"

namespace paceline {

double CudaForward::batch_seconds(std::span<const Row> rows, int times) {
    PACE_CHECK(times >= 1 && !rows.empty() && rows.size() == batch_rows(rows),
               "one batch, and how often");
    const std::vector<Stretch> stretches = stretches_of(rows);
    PACE_CHECK(stretches.size() == 1 && stretches.front().rows.size() == rows.size(),
               "all rows go through the same sub-layers");
    cuda::Stream& stream = group_.first().stream;
    const Stretch& stretch = stretches.front();
    const bool embeds = stretch.first == 0;
    // Hidden states that are not embedded may be anything but NaN.
    group_.on_each([&](CudaRank& rank) {
        rank.stream.fill(rank.at.hidden, 0,
                         rows.size() * static_cast<std::size_t>(config_.dim) * sizeof(float));
    });
    send(rows, stretch.rows, config_.heads, config_.kv_heads);
    group_.join();
    launch_stretch(stretch, embeds);  // loads the kernels' code, which a recording may not
    stream.finish();
    const cuda::Graph graph = stream.record([&] { launch_stretch(stretch, embeds); });
    graph.launch(stream);
    cuda::Event begin;
    cuda::Event end;
    begin.record(stream);
    for (int i = 0; i < times; ++i) graph.launch(stream);
    end.record(stream);
    stream.finish();
    return cuda::Event::seconds_between(begin, end) / times;
}

}  // namespace paceline
