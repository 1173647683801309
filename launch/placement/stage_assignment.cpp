#include "launch/placement/stage_assignment.hpp"

#include <istream>
#include <type_traits>

#include "ipc/wire/bounded_archive.hpp"
#include "ipc/wire/control.hpp"

namespace paceline {

namespace {

constexpr int kNoGpu = -1;

}  // namespace

template <class Archive>
void serialize(Archive& archive, StageDuty& duty) {
    int gpu = duty.device.gpu.value_or(kNoGpu);
    archive(duty.id, duty.role, duty.layers.first, duty.layers.last, duty.exit, gpu);
    const Device device{gpu == kNoGpu ? std::nullopt : std::optional{gpu}};
    if (!(device == duty.device)) duty.device = device;  // was read; what is written may be const
}

namespace {

constexpr std::uint32_t kPathBytesMax = 4096;
constexpr std::uint32_t kCoresMax = 1024;
constexpr std::size_t kDutyBytesMin = 4;

/// `Of` with the constness of `As`: an output archive reads its fields, an input archive sets them.
template <class As, class Of>
using Like = std::conditional_t<std::is_const_v<As>, const Of, Of>;

template <class Archive, class Duration>
void micros(Archive& archive, Duration& duration) {
    std::int64_t count = duration.count();
    archive(count);
    if constexpr (!std::is_const_v<Duration>) duration = Duration{count};
}

template <class Archive, class Draft>
void draft_fields(Archive& archive, Draft& d) {
    archive(d.lookup, d.model, bounded(d.model_file, kPathBytesMax), d.size, d.layers, d.short_list,
            d.min_ngram, d.max_ngram);
    Like<Draft, GrowthRule>& g = d.growth;
    archive(g.pace, g.part, g.gamma, g.gamma_early, g.adaptive, g.confidence_min, g.while_worth,
            g.width, g.own_alternatives, g.exit_alternatives, g.branch_budget, g.draft_reach_min);
}

template <class Archive, class Exit>
void exit_fields(Archive& archive, Exit& e) {
    archive(e.head, bounded(e.heads_file, kPathBytesMax), bounded(e.adapter_file, kPathBytesMax),
            e.seed, e.short_list, e.names, e.top, e.lockstep, e.proposes, e.gate, e.early_max,
            e.defers, e.ahead, e.ahead_top, e.always_on);
    micros(archive, e.defer_limit);
}

template <class Archive, class Dispatch>
void dispatch_fields(Archive& archive, Dispatch& d) {
    archive(d.start, d.shape, d.rows_max, d.waves_in_flight_max, d.prefill_rows, d.requests_max,
            d.verify_reach_min);
    micros(archive, d.proposal_wait);
}

/// The fields in their order on the wire, for writing and for reading.
template <class Archive, class Assignment>
void fields(Archive& archive, Assignment& a) {
    archive(bounded(a.model.model, kPathBytesMax), bounded(a.model.dtype, control::kNameBytesMax),
            bounded(a.model.kv_dtype, control::kNameBytesMax),
            bounded(a.model.isa, control::kNameBytesMax), a.model.context);
    archive(bounded(a.duties, control::kActorsMax, kDutyBytesMin));
    archive(bounded(a.cores, kCoresMax, sizeof(int)), a.threads, a.usable_cores);
    archive(a.kv_slots, a.segments, a.draft_stage, a.correct_stage, a.naming_stage, a.verbose);
    dispatch_fields(archive, a.dispatch);
    draft_fields(archive, a.draft);
    bool exit = a.exit.has_value();
    archive(exit);
    if constexpr (!std::is_const_v<Assignment>) {
        if (exit) a.exit.emplace();
    }
    if (exit) exit_fields(archive, *a.exit);
}

}  // namespace

std::vector<std::byte> encode(const StageAssignment& assignment) {
    std::vector<std::byte> bytes;
    VectorBuffer buffer{bytes};
    std::ostream stream{&buffer};
    BoundedOutput archive{stream};
    fields(archive, assignment);
    return bytes;
}

Result<StageAssignment> decode_assignment(std::span<const std::byte> bytes) {
    SpanBuffer buffer{bytes};
    std::istream stream{&buffer};
    StageAssignment assignment;
    try {
        BoundedInput archive{buffer, stream};
        fields(archive, assignment);
    } catch (const cereal::Exception& error) {
        return Error{Errc::Protocol,
                     std::string{"a stage's assignment does not decode: "} + error.what()};
    }
    if (buffer.left() != 0) {
        return Error{Errc::Protocol, "a stage's assignment has " + std::to_string(buffer.left()) +
                                         " bytes too many"};
    }
    return assignment;
}

}  // namespace paceline
