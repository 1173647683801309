// Streams, graphs and events of runtime.hpp on the host: a stream does everything at once.
//
// Or piece by piece, where a test asks for it (order.hpp: set_lazy). A stream that waits for an
// event lets the event's stream run as far as there. A recording of several streams is put into an
// order that keeps what waits for what when it is launched.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <deque>
#include <fmt/core.h>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "model/kernels/cuda/launch.cuh"
#include "model/kernels/cuda/runtime.hpp"
#include "tests/emulated/cuda/devices_emulated.hpp"
#include "tests/emulated/cuda/order.hpp"

namespace paceline::cuda {
namespace {

using emulated::all_devices;
using emulated::check_on_device;
using emulated::kNoDevice;
using Clock = std::chrono::steady_clock;

struct Point;

/// A piece of a stream's work: something to do, a point that is reached, or one that is awaited.
struct Step {
    std::function<void()> run = {};
    std::shared_ptr<Point> reaches = {};
    std::shared_ptr<Point> awaits = {};
};

/// What a stream has left to do; a stream that is not lazy never keeps anything.
struct Queue {
    int device = 0;
    std::deque<Step> waiting;
};

/// A recording while it is being made; nothing afterwards.
struct Capture {
    Graph::Recording* to = nullptr;
};

/// Where an event of order was recorded; a new one each time.
struct Point {
    std::weak_ptr<Queue> queue;
    std::shared_ptr<Capture> capture;  // of which it is an edge; nothing: of none
    bool reached = false;
};

bool can_go(const Queue& queue) {
    if (queue.waiting.empty()) return false;
    const Step& step = queue.waiting.front();
    return step.awaits == nullptr || step.awaits->reached;
}

/// One piece of a queue's work, or of the work that it waits for.
void advance(Queue& queue) {
    const Step step = queue.waiting.front();
    if (step.awaits != nullptr && !step.awaits->reached) {
        const std::shared_ptr<Queue> other = step.awaits->queue.lock();
        if (other == nullptr || other->waiting.empty())
            throw DeviceError("a stream waits for an event that never comes (emulated device)");
        return advance(*other);
    }
    queue.waiting.pop_front();  // also if it throws
    if (step.reaches != nullptr) step.reaches->reached = true;
    if (step.run) step.run();
}

/// The queues of all streams, for set_ahead().
class Queues {
public:
    void add(const std::shared_ptr<Queue>& queue) {
        const std::scoped_lock lock(mutex_);
        std::erase_if(all_, [](const std::weak_ptr<Queue>& one) { return one.expired(); });
        all_.push_back(queue);
    }
    /// Lets those of `device` run as far as they can.
    void run(int device) {
        std::vector<std::shared_ptr<Queue>> found;
        {
            const std::scoped_lock lock(mutex_);
            for (const std::weak_ptr<Queue>& one : all_) {
                if (auto queue = one.lock(); queue != nullptr && queue->device == device)
                    found.push_back(std::move(queue));
            }
        }
        for (const std::shared_ptr<Queue>& queue : found) {
            while (can_go(*queue)) advance(*queue);
        }
    }

private:
    std::mutex mutex_;
    std::vector<std::weak_ptr<Queue>> all_;
};

Queues& queues() {
    static Queues* one = new Queues;
    return *one;
}

/// Before a stream is looked at.
void run_ahead() {
    if (const int device = all_devices().ahead; device != kNoDevice) queues().run(device);
}

}  // namespace

namespace emulated {

std::string kernel_name(const std::type_info& argument) {
    int status = 0;
    char* text = abi::__cxa_demangle(argument.name(), nullptr, nullptr, &status);
    std::string name = status == 0 ? text : argument.name();
    std::free(text);
    return "kernel(" + name + ")";
}

}  // namespace emulated

struct Graph::Recording {
    struct Entry {
        std::shared_ptr<Queue> of;
        Step step;
    };
    std::vector<Entry> entries;  // in the order in which they were recorded
    std::shared_ptr<Capture> capture = std::make_shared<Capture>(Capture{this});
    std::vector<Stream::Handle*> streams;  // that are part of it, while it is being made
};

struct Stream::Handle {
    std::shared_ptr<Queue> queue = std::make_shared<Queue>();
    Graph::Recording* records = nullptr;  // while it records

    void submit(Step step) {
        if (records != nullptr) {
            records->entries.push_back({queue, std::move(step)});
            return;
        }
        queue->waiting.push_back(std::move(step));
        if (all_devices().lazy) return;
        while (!queue->waiting.empty()) advance(*queue);
    }
    void submit(std::function<void()> run) { submit(Step{.run = std::move(run)}); }
};

Stream::Stream() : handle_(std::make_unique<Handle>()) {
    handle_->queue->device = emulated::current_device();
    queues().add(handle_->queue);
}
Stream::~Stream() = default;

void Stream::to_device(void* device_address, const void* host, std::size_t bytes) {
    to_device(device_address, host, {1, bytes, bytes});
}

void Stream::to_host(void* host, const void* device_address, std::size_t bytes) {
    to_host(host, device_address, {1, bytes, bytes});
}

namespace {

void check_pieces(const void* address, const Pieces& pieces, const char* call) {
    if (pieces.count == 0 || pieces.bytes == 0) return;
    if (pieces.count > 1 && pieces.stride < pieces.bytes)
        throw DeviceError(std::string(call) + ": pieces overlap (emulated device)");
    check_on_device(address, (pieces.count - 1) * pieces.stride + pieces.bytes, call);
}

void part(void* apart, const void* together, const Pieces& pieces) {
    auto* to = static_cast<std::byte*>(apart);
    const auto* from = static_cast<const std::byte*>(together);
    for (std::size_t i = 0; pieces.bytes > 0 && i < pieces.count; ++i)
        std::memcpy(to + i * pieces.stride, from + i * pieces.bytes, pieces.bytes);
}

void join(void* together, const void* apart, const Pieces& pieces) {
    auto* to = static_cast<std::byte*>(together);
    const auto* from = static_cast<const std::byte*>(apart);
    for (std::size_t i = 0; pieces.bytes > 0 && i < pieces.count; ++i)
        std::memcpy(to + i * pieces.bytes, from + i * pieces.stride, pieces.bytes);
}

}  // namespace

void Stream::to_device(void* device_address, const void* host, const Pieces& pieces) {
    check_pieces(device_address, pieces, "to_device()");
    handle_->submit([=] {
        part(device_address, host, pieces);
        all_devices().bytes_to_device += pieces.count * pieces.bytes;
    });
}

void Stream::to_host(void* host, const void* device_address, const Pieces& pieces) {
    check_pieces(device_address, pieces, "to_host()");
    handle_->submit([=] {
        join(host, device_address, pieces);
        all_devices().bytes_to_host += pieces.count * pieces.bytes;
    });
}

void Stream::join_on_device(void* together, const void* apart, const Pieces& pieces) {
    check_on_device(together, pieces.count * pieces.bytes, "join_on_device() to");
    check_pieces(apart, pieces, "join_on_device() from");
    handle_->submit([=] { join(together, apart, pieces); });
}

void Stream::part_on_device(void* apart, const void* together, const Pieces& pieces) {
    check_pieces(apart, pieces, "part_on_device() to");
    check_on_device(together, pieces.count * pieces.bytes, "part_on_device() from");
    handle_->submit([=] { part(apart, together, pieces); });
}

void Stream::on_device(void* to, const void* from, std::size_t bytes) {
    check_on_device(to, bytes, "on_device() to");
    check_on_device(from, bytes, "on_device() from");
    const auto* source = static_cast<const std::byte*>(from);
    const auto* target = static_cast<const std::byte*>(to);
    const std::less<> before;
    if (bytes > 0 && before(source, target + bytes) && before(target, source + bytes)) {
        throw DeviceError("on_device(): from and to overlap (emulated device)");
    }
    handle_->submit([=] {
        if (bytes > 0) std::memcpy(to, from, bytes);
    });
}

void Stream::fill(void* device_address, std::uint8_t value, std::size_t bytes) {
    check_on_device(device_address, bytes, "fill()");
    handle_->submit([=] {
        if (bytes > 0) std::memset(device_address, value, bytes);
    });
}

void Stream::finish() {
    if (handle_->records != nullptr) throw DeviceError("finish() of a stream that records");
    ++all_devices().waits;
    run_ahead();
    while (!handle_->queue->waiting.empty()) advance(*handle_->queue);
    emulated::check_lost(handle_->queue->device);
}

bool Stream::idle() {
    if (handle_->records != nullptr) throw DeviceError("idle() of a stream that records");
    emulated::check_lost(handle_->queue->device);
    run_ahead();
    if (handle_->queue->waiting.empty()) return true;
    advance(*handle_->queue);
    return false;
}

namespace {

/// Throws if a stream was given work that the recording's own stream does not wait for.
void check_joined(const Graph::Recording& recording, const Queue& own) {
    // From the end back: how much of each queue is waited for.
    std::map<const Queue*, std::size_t> awaited{{&own, recording.entries.size()}};
    for (std::size_t i = recording.entries.size(); i-- > 0;) {
        const auto& [of, step] = recording.entries[i];
        const auto found = awaited.find(of.get());
        const bool covered = found != awaited.end() && i < found->second;
        if (step.run && !covered)
            throw DeviceError("a recording ends without waiting for a stream (emulated device)");
        if (step.awaits == nullptr || !covered) continue;
        for (std::size_t j = 0; j < i; ++j) {
            if (recording.entries[j].step.reaches != step.awaits) continue;
            std::size_t& until = awaited[recording.entries[j].of.get()];
            until = std::max(until, j + 1);
        }
    }
}

/// What a recording does, in an order that keeps what waits for what; the parts of the device that
/// set_ahead() names as early as they can be.
std::vector<std::function<void()>> in_order(const Graph::Recording& recording) {
    std::map<const Queue*, std::deque<const Graph::Recording::Entry*>> left;
    std::vector<const Queue*> turns;  // in the order in which they were recorded
    for (const Graph::Recording::Entry& entry : recording.entries) {
        left[entry.of.get()].push_back(&entry);
        turns.push_back(entry.of.get());
    }
    std::set<const Point*> reached;
    std::vector<std::function<void()>> steps;
    const auto take = [&](const Queue* queue) {
        const Step& step = left[queue].front()->step;
        left[queue].pop_front();
        if (step.reaches != nullptr) reached.insert(step.reaches.get());
        if (step.run) steps.push_back(step.run);
    };
    const auto goes = [&](const Queue* queue) {
        if (left[queue].empty()) return false;
        const Step& step = left[queue].front()->step;
        return step.awaits == nullptr || reached.contains(step.awaits.get());
    };
    const int ahead = all_devices().ahead;
    // As recorded each turn's entry comes when those before it have; who runs ahead has none left.
    for (const Queue* turn : turns) {
        for (auto& [queue, entries] : left) {
            while (queue->device == ahead && goes(queue)) take(queue);
        }
        if (goes(turn)) take(turn);
    }
    return steps;
}

}  // namespace

Graph Stream::record(const std::function<void()>& work) {
    if (handle_->records != nullptr) throw DeviceError("record() within record()");
    Graph graph;
    graph.recording_ = std::make_unique<Graph::Recording>();
    struct Recorder {  // also ends the recording if `work` throws
        Graph::Recording& recording;
        ~Recorder() {
            for (Handle* stream : recording.streams) stream->records = nullptr;
            recording.streams.clear();
            recording.capture->to = nullptr;
        }
    };
    const Recorder recorder{*graph.recording_};
    graph.recording_->streams.push_back(handle_.get());
    handle_->records = graph.recording_.get();
    work();
    check_joined(*graph.recording_, *handle_->queue);
    return graph;
}

Graph::Graph() = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;
Graph::~Graph() = default;

void Graph::launch(Stream& stream) const {
    if (empty()) throw DeviceError("launch() of an empty graph");
    if (stream.handle().records != nullptr) throw DeviceError("a graph launched while recording");
    for (std::function<void()>& step : in_order(*recording_))
        stream.handle().submit(std::move(step));
}

struct Event::Handle {
    EventUse use = EventUse::Time;
    int device = emulated::current_device();
    // Shared with the steps that record it: a graph may outlive its events.
    std::shared_ptr<std::optional<Clock::time_point>> at =
        std::make_shared<std::optional<Clock::time_point>>();
    std::shared_ptr<Point> point;  // of an event for order
};

Event::Event(EventUse use) : handle_(std::make_unique<Handle>()) {
    handle_->use = use;
}
Event::~Event() = default;

void Event::record(Stream& stream) {
    Stream::Handle& to = stream.handle();
    if (to.queue->device != handle_->device)
        throw DeviceError(
            fmt::format("an event of cuda:{} recorded in a stream of cuda:{} "
                        "(emulated device)",
                        handle_->device, to.queue->device));
    if (handle_->use == EventUse::Time)
        return to.submit([at = handle_->at] { *at = Clock::now(); });
    handle_->point = std::make_shared<Point>();
    handle_->point->queue = to.queue;
    if (to.records != nullptr) handle_->point->capture = to.records->capture;
    to.submit(Step{.reaches = handle_->point});
}

void Stream::wait(const Event& event) {
    if (event.handle_->use != EventUse::Order)
        throw DeviceError("wait() for an event that is not for order");
    const std::shared_ptr<Point>& point = event.handle_->point;
    if (point == nullptr) return;
    if (point->capture == nullptr && handle_->records != nullptr)
        throw DeviceError("a recording waits for an event from outside of it (emulated device)");
    if (point->capture != nullptr && point->capture->to == nullptr)
        throw DeviceError("wait() for an event of a recording that has ended (emulated device)");
    if (point->capture != nullptr && handle_->records == nullptr) {
        // The event's stream records: this one does from now on.
        Graph::Recording* recording = point->capture->to;
        recording->streams.push_back(handle_.get());
        handle_->records = recording;
    }
    handle_->submit(Step{.awaits = point});
}

bool Event::reached() const {
    if (handle_->use == EventUse::Order)
        return handle_->point != nullptr && handle_->point->reached;
    return handle_->at->has_value();
}

double Event::seconds_between(const Event& from, const Event& to) {
    if (!from.reached() || !to.reached()) {
        throw DeviceError("seconds_between() of an event that was not reached");
    }
    if (from.handle_->use != EventUse::Time || to.handle_->use != EventUse::Time)
        throw DeviceError("seconds_between() of an event that has no time");
    return std::chrono::duration<double>(**to.handle_->at - **from.handle_->at).count();
}

namespace emulated {

void check_launch(const Stream& stream, const Grid& grid, const void* argument, std::size_t bytes) {
    const int device = stream.handle().queue->device;
    if (device != current_device())
        throw DeviceError(
            fmt::format("{}: launched by a thread of cuda:{} in a stream of cuda:{} "
                        "(emulated device)",
                        grid.kernel, current_device(), device));
    check_argument(grid.kernel, device, argument, bytes);
}

void submit(Stream& stream, Grid grid, std::function<void()> body) {
    check_grid(grid);
    const int device = stream.handle().queue->device;
    stream.handle().submit([device, grid = std::move(grid), body = std::move(body)] {
        Devices& the = all_devices();
        if (the.lost == device) return;
        if (the.fail_next.exchange(false)) {
            throw DeviceError(grid.kernel + ": failed as a test asked for (emulated device)");
        }
        const std::uint64_t number = ++the.launches;
        if (number == the.breaks_at && the.breaks()) the.broken = true;
        if (the.broken) {
            throw DeviceError(grid.kernel + ": the device is broken as a test asked for " +
                              "(emulated device)");
        }
        run_grid(grid, body);
    });
}

}  // namespace emulated
}  // namespace paceline::cuda
