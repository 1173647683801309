#include "runtime/observe/stage_telemetry.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fcntl.h>
#include <fmt/core.h>
#include <new>
#include <span>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ipc/base/memory_file.hpp"
#include "ipc/transport/ring_layout.hpp"

namespace paceline {
namespace {

constexpr std::uint64_t kTelemetryMagic = 0x4547415045434150ULL;  // "PACEPAGE"
constexpr std::uint32_t kTelemetryVersion = 4;
constexpr std::size_t kNameBytes = 64;
constexpr std::uint32_t kTraceEventsMax = 1U << 22;
constexpr std::size_t kEventWords = sizeof(TraceEvent) / sizeof(std::uint64_t);
using EventWords = std::array<std::uint64_t, kEventWords>;
static_assert(sizeof(EventWords) == sizeof(TraceEvent));

std::chrono::nanoseconds monotonic_now() {
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return std::chrono::seconds{time.tv_sec} + std::chrono::nanoseconds{time.tv_nsec};
}

/// One recorded event. The stamp is its number + 1, and 0 while the event changes, so that a
/// reader sees that it was being overwritten, also when the writer died meanwhile.
struct TraceSlot {
    // Release by the writer after the event, acquire by the reader before it.
    std::atomic<std::uint64_t> stamp;
    // Relaxed: the stamp and the fences beside it order them. Atomic because a reader may look
    // while they change.
    std::array<std::atomic<std::uint64_t>, kEventWords> words;
};
static_assert(sizeof(TraceSlot) == 64);

}  // namespace

/// JobRecord, each word relaxed: figures of their own.
struct JobCells {
    std::atomic<std::uint32_t> longest_us;
    std::atomic<std::uint32_t> most_rows;
    std::atomic<std::uint32_t> longest_of_most_us;

    void store(const JobRecord& record) {
        longest_us.store(record.longest_us, std::memory_order_relaxed);
        most_rows.store(record.most_rows, std::memory_order_relaxed);
        longest_of_most_us.store(record.longest_of_most_us, std::memory_order_relaxed);
    }
    [[nodiscard]] JobRecord load() const {
        return {longest_us.load(std::memory_order_relaxed),
                most_rows.load(std::memory_order_relaxed),
                longest_of_most_us.load(std::memory_order_relaxed)};
    }
};

struct TelemetryLayout {
    // Written before the telemetry block has a reader, and never again.
    alignas(kLineBytes) std::uint64_t magic;
    std::uint32_t version;
    std::uint32_t stage;
    std::uint32_t epoch;
    // Atomic, relaxed: read exactly once, so that what was checked is what is used.
    std::atomic<std::uint32_t> trace_capacity;
    std::atomic<std::uint32_t> pid;  // relaxed: a figure
    std::array<char, kNameBytes> name;
    // Release by the writer after deadline 0 and `since`, acquire by the reader before it reads
    // them: a new activity is never seen with the deadline of the last one.
    alignas(kLineBytes) std::atomic<std::uint32_t> activity;
    std::atomic<std::uint32_t> job;  // relaxed, before the activity
    std::atomic<std::int64_t> since_ns;
    std::atomic<std::int64_t> deadline_ns;
    std::atomic<std::uint64_t> progress;  // relaxed: a figure
    std::array<JobCells, kJobNamesMax> jobs;
    // Relaxed: each is a figure of its own.
    alignas(kLineBytes) std::array<std::atomic<std::uint64_t>, kGauges> gauges;
    alignas(kLineBytes) std::array<std::atomic<std::uint64_t>, kCounters> counters;
    // Release by the writer after the event's stamp, acquire by the reader before the stamps.
    alignas(kLineBytes) std::atomic<std::uint64_t> traced;
};
// As drawn in the header and in docs/observability.md; a change must bump kTelemetryVersion. A name
// for a free slot is no change: the slot is 0 until its first count.
static_assert(offsetof(TelemetryLayout, activity) == 128 && offsetof(TelemetryLayout, job) == 132);
static_assert(offsetof(TelemetryLayout, jobs) == 160 && offsetof(TelemetryLayout, gauges) == 256);
static_assert(offsetof(TelemetryLayout, counters) == 384 &&
              offsetof(TelemetryLayout, traced) == 768);
static_assert(sizeof(TelemetryLayout) == 896);

namespace {

constexpr std::size_t kTraceOffset = sizeof(TelemetryLayout);

std::size_t page_bytes(std::uint64_t trace_capacity) {
    return kTraceOffset + trace_capacity * sizeof(TraceSlot);
}

/// Fills a telemetry block of zeros.
void begin_page(TelemetryLayout& telemetry, StageId stage, Epoch epoch, std::string_view name) {
    telemetry.magic = kTelemetryMagic;
    telemetry.version = kTelemetryVersion;
    telemetry.stage = stage.value;
    telemetry.epoch = epoch.value;
    std::copy_n(name.begin(), std::min(name.size(), kNameBytes - 1), telemetry.name.begin());
    telemetry.since_ns.store(monotonic_now().count(), std::memory_order_relaxed);
}

/// The capacity that a telemetry block claims, or an error if the claim does not fit its memory.
Result<std::uint64_t> checked_capacity(const TelemetryLayout& telemetry, std::size_t bytes) {
    if (telemetry.magic != kTelemetryMagic || telemetry.version != kTelemetryVersion) {
        return Error{Errc::Protocol, "a telemetry block has the wrong magic number or version"};
    }
    const std::uint64_t capacity = telemetry.trace_capacity.load(std::memory_order_relaxed);
    const bool fits = capacity <= kTraceEventsMax && page_bytes(capacity) <= bytes &&
                      (capacity == 0 || std::has_single_bit(capacity));
    if (!fits) {
        return Error{
            Errc::Protocol,
            fmt::format("a telemetry block claims {} trace events in {} bytes", capacity, bytes)};
    }
    return capacity;
}

/// The name in a telemetry block, with only printable characters.
std::string printable_name(const TelemetryLayout& telemetry) {
    std::string name{telemetry.name.begin(), telemetry.name.end()};
    name.resize(std::min(name.find('\0'), name.size()));
    std::replace_if(
        name.begin(), name.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
    return name;
}

}  // namespace

const char* name_of(Activity activity) {
    switch (activity) {
        case Activity::Starting:
            return "starting";
        case Activity::Loading:
            return "loading";
        case Activity::Handling:
            return "handling";
        case Activity::Computing:
            return "computing";
        case Activity::Waiting:
            return "waiting";
        case Activity::Ended:
            return "ended";
    }
    return "unknown";
}

// ---- between machines ----

namespace {

using BlockWords = std::array<std::uint64_t, kTelemetryBlockBytes / sizeof(std::uint64_t)>;
static_assert(kTelemetryBlockBytes == sizeof(TelemetryLayout));

constexpr std::size_t word_at(std::size_t offset) {
    return offset / sizeof(std::uint64_t);
}

}  // namespace

Result<TelemetryBlock> read_telemetry_block(std::span<const std::byte> memory) {
    if (memory.size() < kTelemetryBlockBytes)
        return Error{Errc::Protocol, fmt::format("a telemetry block of {} bytes", memory.size())};
    // Word by word, each as its writer stores it or in part: all are figures of their own.
    BlockWords words{};
    for (std::size_t i = 0; i < words.size(); ++i) {
        // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): atomic_ref has no const form
        auto* word = const_cast<std::uint64_t*>(
            std::launder(reinterpret_cast<const std::uint64_t*>(memory.data()) + i));
        words[i] = std::atomic_ref<std::uint64_t>{*word}.load(std::memory_order_acquire);
    }
    TelemetryBlock block{};
    std::memcpy(block.data(), words.data(), block.size());
    return block;
}

Status write_telemetry_block(std::span<std::byte> memory,
                             const TelemetryBlock& block,
                             std::chrono::nanoseconds shift) {
    BlockWords words{};
    std::memcpy(words.data(), block.data(), block.size());
    if (memory.size() < kTelemetryBlockBytes)
        return Error{Errc::Protocol, fmt::format("a telemetry block of {} bytes", memory.size())};
    auto* own = std::launder(reinterpret_cast<std::uint64_t*>(memory.data()));
    // magic | version, stage | epoch, trace capacity
    const bool same_epoch =
        static_cast<std::uint32_t>(words[2]) == static_cast<std::uint32_t>(own[2]);
    if (words[0] != kTelemetryMagic || words[0] != own[0] || words[1] != own[1] || !same_epoch) {
        return Error{Errc::Protocol, "a telemetry block of another incarnation or version"};
    }
    constexpr std::size_t kSince = word_at(offsetof(TelemetryLayout, since_ns));
    constexpr std::size_t kDeadline = word_at(offsetof(TelemetryLayout, deadline_ns));
    constexpr std::size_t kTraced = word_at(offsetof(TelemetryLayout, traced));
    words[kSince] += static_cast<std::uint64_t>(shift.count());
    if (words[kDeadline] != 0) words[kDeadline] += static_cast<std::uint64_t>(shift.count());
    for (std::size_t i = word_at(offsetof(TelemetryLayout, activity)); i < kTraced; ++i)
        std::atomic_ref<std::uint64_t>{own[i]}.store(words[i], std::memory_order_relaxed);
    return {};
}

// ---- the writer ----

Result<ShmFile> StageTelemetry::create(StageId stage,
                                       Epoch epoch,
                                       std::string_view name,
                                       std::uint32_t trace_events,
                                       const JobRecords& jobs) {
    const std::uint32_t wanted = std::min(trace_events, kTraceEventsMax);
    const std::uint32_t capacity = wanted == 0 ? 0 : std::bit_ceil(wanted);
    TelemetryLayout telemetry{};
    begin_page(telemetry, stage, epoch, name);
    telemetry.trace_capacity.store(capacity, std::memory_order_relaxed);
    for (std::size_t i = 0; i < kJobNamesMax; ++i) telemetry.jobs[i].store(jobs[i]);
    // ShmFile puts "paceline-" in front; the kernel takes no name over 249 bytes.
    const std::string file_name = "telemetry-" + printable_name(telemetry);
    return ShmFile::create(file_name, page_bytes(capacity),
                           std::as_bytes(std::span{&telemetry, 1}));
}

Result<StageTelemetry> StageTelemetry::attach(ShmRegion region) {
    const std::span<std::byte> bytes = region.bytes();
    if (bytes.size() < kTraceOffset) {
        return Error{Errc::Protocol,
                     fmt::format("a telemetry block has only {} bytes", bytes.size())};
    }
    auto* layout = std::launder(reinterpret_cast<TelemetryLayout*>(bytes.data()));
    const Result<std::uint64_t> capacity = checked_capacity(*layout, bytes.size());
    if (!capacity.ok()) return capacity.error();
    StageTelemetry telemetry{std::move(region), nullptr, layout};
    telemetry.trace_capacity_ = capacity.value();
    telemetry.traced_ = layout->traced.load(std::memory_order_relaxed);
    layout->pid.store(static_cast<std::uint32_t>(::getpid()), std::memory_order_relaxed);
    return telemetry;
}

StageTelemetry StageTelemetry::local(StageId stage, Epoch epoch, std::string_view name) {
    auto own = std::make_shared<TelemetryLayout>();
    begin_page(*own, stage, epoch, name);
    TelemetryLayout* layout = own.get();
    return StageTelemetry{ShmRegion{}, std::move(own), layout};
}

JobRecord StageTelemetry::job_record(std::uint32_t job) const {
    return layout_->jobs.at(job).load();
}

void StageTelemetry::set_job_record(std::uint32_t job, const JobRecord& record) {
    layout_->jobs.at(job).store(record);
}

void StageTelemetry::enter(Activity activity, std::chrono::nanoseconds limit, std::uint32_t job) {
    const std::chrono::nanoseconds now = monotonic_now();
    layout_->deadline_ns.store(0, std::memory_order_relaxed);
    layout_->since_ns.store(now.count(), std::memory_order_relaxed);
    layout_->job.store(job, std::memory_order_relaxed);
    layout_->activity.store(static_cast<std::uint32_t>(activity), std::memory_order_release);
    // One writer: no need for a locked add.
    layout_->progress.store(layout_->progress.load(std::memory_order_relaxed) + 1,
                            std::memory_order_relaxed);
    if (limit.count() != 0) {
        layout_->deadline_ns.store((now + limit).count(), std::memory_order_relaxed);
    }
}

void StageTelemetry::count(Counter counter, std::uint64_t add) {
    auto& cell = layout_->counters[static_cast<std::size_t>(counter)];
    cell.store(cell.load(std::memory_order_relaxed) + add, std::memory_order_relaxed);
}

void StageTelemetry::set(Gauge gauge, std::uint64_t value) {
    layout_->gauges[static_cast<std::size_t>(gauge)].store(value, std::memory_order_relaxed);
}

namespace {

/// Event `number` into the ring behind the block at `memory`.
void write_event(std::byte* memory,
                 std::uint64_t capacity,
                 std::uint64_t number,
                 const TraceEvent& event) {
    auto* slots = std::launder(reinterpret_cast<TraceSlot*>(memory + kTraceOffset));
    TraceSlot& slot = slots[number & (capacity - 1)];
    slot.stamp.store(0, std::memory_order_relaxed);
    // Release pairs with the reader's fence: a changed event is never seen under the old stamp.
    std::atomic_thread_fence(std::memory_order_release);
    const auto words = std::bit_cast<EventWords>(event);
    for (std::size_t i = 0; i < kEventWords; ++i) {
        slot.words[i].store(words[i], std::memory_order_relaxed);
    }
    slot.stamp.store(number + 1, std::memory_order_release);
}

}  // namespace

void StageTelemetry::trace(const TraceEvent& event) {
    if (trace_capacity_ == 0) return;
    write_event(reinterpret_cast<std::byte*>(layout_), trace_capacity_, traced_++, event);
    layout_->traced.store(traced_, std::memory_order_release);
}

std::uint32_t trace_capacity_of(std::span<const std::byte> memory) {
    if (memory.size() < kTraceOffset) return 0;
    const auto* layout = std::launder(reinterpret_cast<const TelemetryLayout*>(memory.data()));
    const Result<std::uint64_t> capacity = checked_capacity(*layout, memory.size());
    return capacity.ok() ? static_cast<std::uint32_t>(capacity.value()) : 0;
}

void append_trace(std::span<std::byte> memory,
                  std::span<const TraceEvent> events,
                  std::chrono::nanoseconds shift) {
    const std::uint32_t capacity = trace_capacity_of(memory);
    if (capacity == 0) return;
    auto* layout = std::launder(reinterpret_cast<TelemetryLayout*>(memory.data()));
    const auto shift_us = std::chrono::duration_cast<std::chrono::microseconds>(shift).count();
    std::uint64_t traced = layout->traced.load(std::memory_order_relaxed);
    for (TraceEvent event : events) {
        // Unsigned: a foreign time may be any.
        event.time_us = static_cast<std::int64_t>(static_cast<std::uint64_t>(event.time_us) +
                                                  static_cast<std::uint64_t>(shift_us));
        write_event(memory.data(), capacity, traced++, event);
    }
    layout->traced.store(traced, std::memory_order_release);
}

// ---- the reader ----

void StageTelemetryView::Unmap::operator()(const std::byte* memory) const {
    ::munmap(const_cast<std::byte*>(memory), bytes);
}

Result<StageTelemetryView> StageTelemetryView::attach(int fd) {
    struct stat status {};
    if (::fstat(fd, &status) != 0 || status.st_size < static_cast<off_t>(kTraceOffset)) {
        return Error{Errc::Protocol, "not a telemetry block"};
    }
    const int seals = ::fcntl(fd, F_GET_SEALS);
    if (seals_memory_files() && (seals < 0 || (seals & F_SEAL_SHRINK) == 0)) {
        return Error{Errc::Protocol, "a telemetry block is not sealed against shrinking"};
    }
    const auto bytes = static_cast<std::size_t>(status.st_size);
    void* mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) return Error{Errc::System, "cannot map a telemetry block"};
    std::shared_ptr<const std::byte> memory{static_cast<const std::byte*>(mapped), Unmap{bytes}};
    const auto* layout = std::launder(reinterpret_cast<const TelemetryLayout*>(memory.get()));
    const Result<std::uint64_t> capacity = checked_capacity(*layout, bytes);
    if (!capacity.ok()) return capacity.error();
    return StageTelemetryView{std::move(memory), capacity.value()};
}

const TelemetryLayout& StageTelemetryView::layout() const {
    return *std::launder(reinterpret_cast<const TelemetryLayout*>(memory_.get()));
}

TelemetrySnapshot StageTelemetryView::snapshot() const {
    const TelemetryLayout& telemetry = layout();
    TelemetrySnapshot shot;
    shot.stage = StageId{static_cast<std::uint16_t>(telemetry.stage)};
    shot.epoch = Epoch{telemetry.epoch};
    shot.pid = telemetry.pid.load(std::memory_order_relaxed);
    shot.name = printable_name(telemetry);
    const std::uint32_t activity = telemetry.activity.load(std::memory_order_acquire);
    shot.activity =
        static_cast<Activity>(std::min(activity, static_cast<std::uint32_t>(Activity::Ended)));
    // Never negative, so that subtracting them from a time cannot overflow.
    const auto time_in = [](const std::atomic<std::int64_t>& cell) {
        const std::int64_t time = cell.load(std::memory_order_relaxed);
        return std::chrono::nanoseconds{std::max<std::int64_t>(time, 0)};
    };
    shot.since = time_in(telemetry.since_ns);
    shot.deadline = time_in(telemetry.deadline_ns);
    shot.progress = telemetry.progress.load(std::memory_order_relaxed);
    const std::uint32_t job = telemetry.job.load(std::memory_order_relaxed);
    shot.job = job < kJobNamesMax ? job : 0;
    for (std::size_t i = 0; i < kJobNamesMax; ++i) shot.jobs[i] = telemetry.jobs[i].load();
    for (std::size_t i = 0; i < kCounters; ++i) {
        shot.counters[i] = telemetry.counters[i].load(std::memory_order_relaxed);
    }
    for (std::size_t i = 0; i < kGauges; ++i) {
        shot.gauges[i] = telemetry.gauges[i].load(std::memory_order_relaxed);
    }
    return shot;
}

std::uint64_t StageTelemetryView::traced() const {
    return layout().traced.load(std::memory_order_acquire);
}

std::vector<TraceEvent> StageTelemetryView::trace() const {
    const auto* slots =
        std::launder(reinterpret_cast<const TraceSlot*>(memory_.get() + kTraceOffset));
    const std::uint64_t end = traced();
    const std::uint64_t begin = end > trace_capacity_ ? end - trace_capacity_ : 0;
    std::vector<TraceEvent> events;
    events.reserve(end - begin);
    for (std::uint64_t number = begin; number < end; ++number) {
        const TraceSlot& slot = slots[number & (trace_capacity_ - 1)];
        if (slot.stamp.load(std::memory_order_acquire) != number + 1) continue;
        EventWords words;
        for (std::size_t i = 0; i < kEventWords; ++i) {
            words[i] = slot.words[i].load(std::memory_order_relaxed);
        }
        // Acquire pairs with the writer's fence: words of a later event show its stamp, or 0.
        std::atomic_thread_fence(std::memory_order_acquire);
        if (slot.stamp.load(std::memory_order_relaxed) != number + 1) continue;
        events.push_back(std::bit_cast<TraceEvent>(words));
    }
    return events;
}

}  // namespace paceline
