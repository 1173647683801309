// Several devices that share a stage: the time of a barrier between them, of a layer, of a pass.
#include <fmt/core.h>
#include <map>
#include <memory>
#include <vector>

#include "model/cuda/cuda_group.hpp"
#include "model/kernels/cuda/runtime.hpp"

#include "bench/cuda/chain.hpp"
#include "bench/cuda/sections.hpp"

namespace paceline::bench {
namespace {

constexpr int kBarriers = 200;  // of a recording: those of a pass of 50 layers
constexpr std::size_t kWordBytes = 256;

/// Seconds of a recording in which each device fills a word so many times, with a barrier of the
/// backend's after each, or one at the end alone.
double recorded_seconds(const CudaGroup& group, bool barriers, int times) {
    CudaRank& first = group.first();
    const auto work = [&] {
        group.fork();
        for (int i = 0; i < kBarriers; ++i) {
            group.on_each([](CudaRank& rank) { rank.stream.fill(rank.memory.data(), 0, 4); });
            if (barriers) group.barrier();
        }
        group.join();
    };
    const cuda::Graph graph = first.stream.record(work);
    graph.launch(first.stream);
    cuda::Event begin;
    cuda::Event end;
    begin.record(first.stream);
    for (int i = 0; i < times; ++i) graph.launch(first.stream);
    end.record(first.stream);
    first.stream.finish();
    return cuda::Event::seconds_between(begin, end) / times;
}

Status barrier_table(const Bench& bench, const std::vector<int>& devices) {
    std::vector<std::unique_ptr<CudaRank>> ranks;
    for (std::size_t i = 0; i < devices.size(); ++i) {
        cuda::set_device(devices[i]);
        const CudaPart part{static_cast<int>(i), static_cast<int>(devices.size())};
        ranks.push_back(std::make_unique<CudaRank>(devices[i], part));
        if (!cuda::DeviceMemory::allocate(kWordBytes, ranks.back()->memory))
            return Error{Errc::OutOfMemory, "no memory for a word"};
    }
    cuda::set_device(devices.front());
    const CudaGroup group{ranks};
    const int times = bench.settings.times;
    const double with = recorded_seconds(group, true, times);
    const double without = recorded_seconds(group, false, times);
    const double barrier = (with - without) / kBarriers;
    bench.report.figure("group.barrier.seconds", barrier);
    bench.report.add({fmt::format("A barrier between {} devices, of {} in a recording",
                                  devices.size(), kBarriers),
                      {"with barriers µs", "without µs", "a barrier µs"},
                      {{microseconds(with), microseconds(without), microseconds(barrier)}}});
    return {};
}

}  // namespace

Status groups_section(const Bench& bench) {
    const Result<CudaOptions> given = cuda_options(bench);
    if (!given) return given.error();
    CudaOptions options = given.value();
    std::vector<int> devices{options.device};
    while (static_cast<int>(devices.size()) < bench.settings.group)
        devices.push_back(devices.back() + 1);
    if (!cuda::enable_peers(devices))
        bench.report.say("peer access", "none: parts go through the host's memory");
    if (Status measured = barrier_table(bench, devices); !measured) return measured;
    const int context = usual_context(bench.settings);
    const int layers = bench.file.config().layers;
    Table table{"Layers on several devices",
                {"devices", "rows", "context", "pass µs", "a layer µs", "of one device"}};
    std::map<int, double> on_one;  // by rows
    for (std::size_t count = 1; count <= devices.size(); ++count) {
        options.others.assign(devices.begin() + 1,
                              devices.begin() + static_cast<std::ptrdiff_t>(count));
        const Result<std::unique_ptr<CudaBackend>> made = make_cuda_backend(bench.file, options);
        if (!made && made.error().code != Errc::OutOfMemory) return made.error();
        if (!made) {
            bench.report.say(fmt::format("{} devices", count), made.error().what);
            continue;
        }
        Chain chain{*made.value()};
        chain.fill(context);
        for (const int rows : bench.settings.rows) {
            const double pass =
                made.value()->batch_seconds(chain.rows(context, rows), bench.settings.times);
            if (count == 1) on_one[rows] = pass;
            bench.report.figure(fmt::format("group.layers.seconds.{}.{}", count, rows), pass);
            table.rows.push_back({std::to_string(count), std::to_string(rows),
                                  std::to_string(context), microseconds(pass),
                                  microseconds(pass / layers), share_of(pass, on_one[rows])});
        }
    }
    bench.report.add(table);
    return {};
}

}  // namespace paceline::bench
