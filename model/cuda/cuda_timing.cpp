// How long the device takes for a batch, apart from the host: what benches ask of CudaForward.
#include "ipc/base/check.hpp"
#include "model/cuda/cuda_forward.hpp"

namespace paceline {

double CudaForward::batch_seconds(std::span<const Row> rows, int times) {
    PACE_CHECK(times >= 1 && !rows.empty() && rows.size() == batch_rows(rows),
               "one batch, and how often");
    const std::vector<Stretch> stretches = stretches_of(rows);
    PACE_CHECK(stretches.size() == 1 && stretches.front().rows.size() == rows.size(),
               "all rows go through the same sub-layers");
    const Stretch& stretch = stretches.front();
    const bool embeds = stretch.first == 0;
    // Hidden states that are not embedded may be anything but NaN.
    on_each([&](CudaRank& rank) {
        rank.stream.fill(rank.at.hidden, 0,
                         rows.size() * static_cast<std::size_t>(config_.dim) * sizeof(float));
    });
    send(rows, stretch.rows, config_.heads, config_.kv_heads);
    join();
    launch_stretch(stretch, embeds);  // loads the kernels' code, which a recording may not
    stream_.finish();
    const cuda::Graph graph = stream_.record([&] { launch_stretch(stretch, embeds); });
    graph.launch(stream_);
    cuda::Event begin;
    cuda::Event end;
    begin.record(stream_);
    for (int i = 0; i < times; ++i) graph.launch(stream_);
    end.record(stream_);
    stream_.finish();
    return cuda::Event::seconds_between(begin, end) / times;
}

}  // namespace paceline
