// bench_links: what a link costs beside the raw primitive below it, by transport and size.
//
// Both ends are in this process, on two devices if there are two. One tensor at a time: latency is
// the median from the begin of the copy (or send) to arrived() at the other end, bandwidth its
// bytes over that time.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fmt/core.h>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ipc/device/device_links.hpp"
#include "ipc/device/device_memory.hpp"
#include "ipc/device/nccl.hpp"

namespace paceline {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kSmallest = 64;
constexpr std::size_t kGrowth = 4;

struct Options {
    int times = 200;
    std::size_t largest = std::size_t{16} << 20U;
};

[[noreturn]] void stop(const std::string& what) {
    fmt::print(stderr, "bench_links: {}\n", what);
    std::exit(1);
}

template <class T>
T take(Result<T> result) {
    if (!result) stop(result.error().what);
    return std::move(result).value();
}

void need(const Status& status) {
    if (!status) stop(status.error().what);
}

void need(NcclResult result) {
    if (result != NcclResult::Success && result != NcclResult::InProgress) stop(nccl_text(result));
}

/// A device, work in a stream of it, and memory to copy from.
struct Desk {
    Desk(int device, std::size_t bytes)
        : links{take(make_tensor_device(device))}, driver{take(open_driver(device))} {
        need(driver->enter());
        memory = take(DeviceMemoryBlock::create(*driver, bytes));
        stream = take(driver->make_stream());
        event = take(driver->make_event());
    }
    void wait() const {
        need(driver->record(event, stream));
        while (!take(driver->reached(event))) {
        }
    }
    void copy_to(std::byte* to, std::size_t bytes) const {
        need(driver->enter());
        need(driver->copy(to, memory.data(), bytes, stream));
        wait();
    }
    std::unique_ptr<TensorDevice> links;
    std::unique_ptr<Driver> driver;
    DeviceMemoryBlock memory;
    DeviceStream stream = nullptr;
    DeviceEvent event = nullptr;
};

struct Ends {
    std::unique_ptr<InLink> in;
    std::unique_ptr<OutLink> out;

    Ends(Transport transport, const Desk& from, const Desk& to, std::size_t bytes) {
        const LinkSpec spec{.name = "bench", .slots = 1, .slot_bytes = bytes, .wake = {}};
        LinkOffer offer;
        in = take(to.links->open_in(transport, spec, offer));
        out = take(from.links->open_out(transport, spec, std::move(offer)));
        while (take(in->poll()) != LinkState::Open || take(out->poll()) != LinkState::Open) {
        }
    }
    void pass(std::size_t bytes) const {
        in->expect(0, bytes);
        out->send(0, bytes);
        while (!in->arrived(0)) (void)take(in->poll());
        while (!out->reusable(0)) (void)take(out->poll());
    }
};

/// Two ranks of one communicator, used as plainly as NCCL can be.
class RawNccl {
public:
    RawNccl(const Desk& from, const Desk& to) : from_{from}, to_{to}, nccl_{take(open_nccl(""))} {
        NcclId id{};
        need(nccl_->unique_id(id));
        need(from_.driver->enter());
        need(nccl_->init(sender_, 2, id, 0));
        need(to_.driver->enter());
        need(nccl_->init(receiver_, 2, id, 1));
        await_calls();
    }
    RawNccl(const RawNccl&) = delete;
    RawNccl& operator=(const RawNccl&) = delete;
    ~RawNccl() {
        (void)nccl_->abort(sender_);
        (void)nccl_->abort(receiver_);
    }
    void pass(std::size_t bytes) {
        need(to_.driver->enter());
        need(nccl_->receive(to_.memory.data(), bytes, 0, receiver_, to_.stream));
        need(from_.driver->enter());
        need(nccl_->send(from_.memory.data(), bytes, 1, sender_, from_.stream));
        await_calls();
        from_.wait();
        need(to_.driver->enter());
        to_.wait();
    }

private:
    void await_calls() {
        for (NcclComm comm : {sender_, receiver_}) {
            NcclResult state = NcclResult::InProgress;
            while (state == NcclResult::InProgress) need(nccl_->state(comm, state));
            need(state);
        }
    }
    const Desk& from_;
    const Desk& to_;
    std::shared_ptr<Nccl> nccl_;
    NcclComm sender_ = nullptr;
    NcclComm receiver_ = nullptr;
};

/// Median, in microseconds; a tenth more calls come before.
double median_us(int times, const std::function<void()>& work) {
    for (int i = 0; i < times / 10 + 1; ++i) work();
    std::vector<double> all;
    for (int i = 0; i < times; ++i) {
        const auto begin = Clock::now();
        work();
        all.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    }
    std::nth_element(all.begin(), all.begin() + times / 2, all.end());
    return all[static_cast<std::size_t>(times) / 2];
}

void print_row(const char* transport, std::size_t bytes, double link_us, double raw_us) {
    const auto bandwidth = [bytes](double us) { return static_cast<double>(bytes) / us / 1000; };
    fmt::print("| {} | {} | {:.1f} | {:.1f} | {:.2f} | {:.2f} | {:.2f} |\n", transport, bytes,
               link_us, raw_us, bandwidth(link_us), bandwidth(raw_us), raw_us / link_us);
}

void measure_exported(const Desk& from, const Desk& to, const Options& options) {
    // The same memories without a link: the consumer's device's, as the producer's sees it.
    const DeviceMemoryBlock raw = take(
        DeviceMemoryBlock::import(*from.driver, take(to.memory.export_file()), to.memory.bytes()));
    const Ends ends{Transport::Exported, from, to, options.largest};
    for (std::size_t bytes = kSmallest; bytes <= options.largest; bytes *= kGrowth) {
        const double link = median_us(options.times, [&] {
            from.copy_to(ends.out->slot(0), bytes);
            ends.pass(bytes);
        });
        const double plain = median_us(options.times, [&] { from.copy_to(raw.data(), bytes); });
        print_row("exported", bytes, link, plain);
    }
}

void measure_nccl(const Desk& from, const Desk& to, const Options& options) {
    std::vector<double> plain;
    {
        RawNccl raw{from, to};
        for (std::size_t bytes = kSmallest; bytes <= options.largest; bytes *= kGrowth) {
            plain.push_back(median_us(options.times, [&] { raw.pass(bytes); }));
        }
    }
    const Ends ends{Transport::Nccl, from, to, options.largest};
    std::size_t row = 0;
    for (std::size_t bytes = kSmallest; bytes <= options.largest; bytes *= kGrowth) {
        print_row("nccl", bytes, median_us(options.times, [&] { ends.pass(bytes); }), plain[row++]);
    }
}

Options read_options(int argc, char** argv) {
    Options options;
    for (int i = 1; i + 1 < argc; i += 2) {
        const std::string_view name = argv[i];
        if (name == "--times") {
            options.times = std::max(1, std::atoi(argv[i + 1]));
        } else if (name == "--largest") {
            options.largest =
                std::max(kSmallest, static_cast<std::size_t>(std::atoll(argv[i + 1])));
        } else {
            stop(fmt::format("unknown option {} (--times N, --largest BYTES)", name));
        }
    }
    return options;
}

int run(int argc, char** argv) {
    const Options options = read_options(argc, argv);
    if (const Status there = exports_memory(0); !there) {
        fmt::print("skipped: no device: {}\n", there.error().what);
        return 0;
    }
    const bool two = exports_memory(1).ok();
#ifdef PACELINE_EMULATED_LINKS
    fmt::print(
        "figures of the emulation: they say that the program works, and nothing of a GPU\n\n");
#endif
    fmt::print("from cuda:{} to cuda:0, median of {}\n\n", two ? 1 : 0, options.times);
    fmt::print("| transport | bytes | link us | raw us | link GB/s | raw GB/s | of raw |\n");
    fmt::print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n");
    const Desk to{0, options.largest};
    const Desk from{two ? 1 : 0, options.largest};
    measure_exported(from, to, options);
    const LinkAbilities abilities = link_abilities(0);
    if (two && abilities.nccl) {
        measure_nccl(from, to, options);
    } else {
        fmt::print("\nnccl: skipped: {}\n",
                   abilities.nccl ? "two ranks need two devices" : abilities.why_no_nccl);
    }
    return 0;
}

}  // namespace
}  // namespace paceline

int main(int argc, char** argv) {
    return paceline::run(argc, argv);
}
