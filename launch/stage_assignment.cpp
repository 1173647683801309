#include "launch/stage_assignment.hpp"

#include <istream>

#include "ipc/bounded_archive.hpp"
#include "ipc/control.hpp"

namespace paceline {

template <class Archive>
void serialize(Archive& archive, StageDuty& duty) {
    archive(duty.id, duty.role, duty.layers.first, duty.layers.last);
}

namespace {

constexpr std::uint32_t kPathBytesMax = 4096;
constexpr std::uint32_t kCoresMax = 1024;
constexpr std::size_t kDutyBytesMin = 4;

/// The fields in their order on the wire, for writing and for reading.
template <class Archive, class Assignment>
void fields(Archive& archive, Assignment& a) {
    archive(bounded(a.model.model, kPathBytesMax), bounded(a.model.dtype, control::kNameBytesMax),
            bounded(a.model.kv_dtype, control::kNameBytesMax),
            bounded(a.model.isa, control::kNameBytesMax), a.model.context);
    archive(bounded(a.duties, control::kActorsMax, kDutyBytesMin));
    archive(bounded(a.cores, kCoresMax, sizeof(int)), a.threads, a.usable_cores);
    archive(a.kv_slots, a.segments, a.draft_stage, a.draft_wait_us);
    archive(a.draft.method, a.draft.gamma, a.draft.min_ngram, a.draft.max_ngram);
    archive(a.talkative);
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
