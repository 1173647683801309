#include "launch/placement/stage_assignment.hpp"

#include <fmt/core.h>
#include <istream>
#include <limits>
#include <variant>

#include "ipc/wire/bounded_archive.hpp"
#include "ipc/wire/control.hpp"
#include "launch/config/field.hpp"

namespace paceline {
namespace {

constexpr double kIntMax = std::numeric_limits<std::int32_t>::max();
constexpr int kCoresMax = 1024;
constexpr std::size_t kStageBytesMin = 6 * sizeof(double) + 2;
constexpr int kNoGpu = -1;
constexpr double kStagesMax = kSegmentsMax + 2;  // draft and correct beside the segments

/// Writes the value of a field, or reads it; one that is out of its range is refused.
template <class Archive>
struct Transfer {
    Archive& archive;
    const Field& field;

    void operator()(bool* at) const {
        auto value = static_cast<std::uint8_t>(*at);
        archive(value);
        require(value <= 1, value);
        *at = value == 1;
    }
    void operator()(const NumberField& number) const {
        double value = number.get();
        archive(value);
        require(number.allows(value), value);
        number.set(value);
    }
    void operator()(const TextField& text) const {
        archive(bounded(*text.at, static_cast<std::uint32_t>(text.bytes_max)));
    }
    void operator()(const WordField& word) const {
        auto index = static_cast<std::uint8_t>(word.get());
        archive(index);
        require(index < word.words.size(), index);
        word.set(index);
    }
    void operator()(const OwnField& /*own*/) const {
        PACE_CHECK(false, "a key with a notation of its own is not sent to stages");
    }

    void require(bool allowed, double value) const {
        if (allowed || Archive::is_saving::value) return;
        throw cereal::Exception(std::string{field.key} + " = " + value_text(value) + ", must be " +
                                type_text(field));
    }
};

template <class Archive>
void transfer(Archive& archive, const std::vector<Field>& fields) {
    for (const Field& field : fields) std::visit(Transfer<Archive>{archive, field}, field.value);
}

}  // namespace

template <class Archive>
void serialize(Archive& archive, StageSpec& spec) {
    int gpu = spec.device.gpu.value_or(kNoGpu);
    int others = static_cast<int>(spec.device.others.size());
    transfer(archive, {{"id", number(spec.id.value, 1, kStagesMax)},
                       {"role", word(spec.role, {"segment", "draft", "correct"})},
                       {"first layer", number(spec.layers.first, 0, kIntMax)},
                       {"last layer", number(spec.layers.last, 0, kIntMax)},
                       {"exit", &spec.exit},
                       {"gpu", number(gpu, kNoGpu, kIntMax)},
                       {"other gpus", number(others, 0, kGroupGpusMax - 1)},
                       {"rows", number(spec.rows_max, kVerifyRowsMax, kBatchRowsMax)}});
    spec.device.gpu = gpu == kNoGpu ? std::nullopt : std::optional{gpu};
    spec.device.others.resize(static_cast<std::size_t>(others));
    for (int& other : spec.device.others)
        transfer(archive, {{"other gpu", number(other, 0, kIntMax)}});
}

namespace {

/// The parts in their order on the wire, for writing and for reading.
template <class Archive>
void transfer(Archive& archive, StageAssignment& a) {
    transfer(archive, {{"model", TextField{&a.model.model}},
                       {"lora", TextField{&a.model.lora}},
                       {"packed copy", TextField{&a.model.copy}},
                       {"dtype", TextField{&a.model.dtype}},
                       {"kv dtype", TextField{&a.model.kv_dtype}},
                       {"isa", TextField{&a.model.isa}},
                       {"draft's file", TextField{&a.parts.draft}},
                       {"draft's packed copy", TextField{&a.parts.draft_copy}},
                       {"heads", TextField{&a.parts.heads}},
                       {"look-ahead heads", TextField{&a.parts.ahead}},
                       {"adapter", TextField{&a.parts.adapter}},
                       {"probe", TextField{&a.parts.probe}},
                       {"context", number(a.model.context, 0, kIntMax)},
                       {"threads", number(a.threads, 1, kCoresMax)},
                       {"usable cores", number(a.usable_cores, 0, kIntMax)},
                       {"shares cores", &a.shares_cores},
                       {"kv slots", number(a.kv_slots, 0, kIntMax)},
                       {"segments", number(a.segments, 1, kSegmentsMax)},
                       {"draft stage", number(a.draft_stage, 0, kStagesMax)},
                       {"correct stage", number(a.correct_stage, 0, kStagesMax)},
                       {"candidate stage", number(a.candidate_stage, 0, kStagesMax)},
                       {"verbose", &a.verbose},
                       {"tensors on device", &a.tensors_on_device}});
    archive(bounded(a.stages, control::kActorsMax, kStageBytesMin));
    std::size_t cores = a.cores.size();
    transfer(archive, {{"cores", number(cores, 0, kCoresMax)}});
    a.cores.resize(cores);
    for (int& core : a.cores) transfer(archive, {{"core", number(core, 0, kIntMax)}});
    std::size_t exits = a.exit_stages.size();
    transfer(archive, {{"exits", number(exits, 0, kSegmentsMax)}});
    a.exit_stages.resize(exits);
    for (StageId& exit : a.exit_stages)
        transfer(archive, {{"exit stage", number(exit.value, 1, kSegmentsMax)}});
    std::size_t retained = a.retained.size();
    transfer(archive, {{"retaining segments", number(retained, 0, kSegmentsMax)}});
    a.retained.resize(retained);
    for (RetainedBy& each : a.retained) {
        transfer(archive, {{"retaining segment", number(each.stage.value, 1, kSegmentsMax)},
                           {"its end", number(each.end, 1, kIntMax)},
                           {"its slots", number(each.slots, 1, kIntMax)}});
    }
    transfer(archive, fields_of(a.dispatch));
    transfer(archive, fields_of(a.draft));
    bool self_draft = a.self_draft.has_value();
    transfer(archive, {{"drafts for itself", &self_draft}});
    if (self_draft) {
        if (!a.self_draft) a.self_draft.emplace();
        transfer(archive, fields_of(*a.self_draft));
    }
    bool exit = a.exit.has_value();
    transfer(archive, {{"has an exit", &exit}});
    if (!exit) return;
    if (!a.exit) a.exit.emplace();
    transfer(archive, fields_of(*a.exit));
}

}  // namespace

std::vector<std::byte> encode(StageAssignment assignment) {
    std::vector<std::byte> bytes;
    VectorBuffer buffer{bytes};
    std::ostream stream{&buffer};
    BoundedOutput archive{stream};
    transfer(archive, assignment);
    return bytes;
}

Result<StageAssignment> decode_assignment(std::span<const std::byte> bytes) {
    SpanBuffer buffer{bytes};
    std::istream stream{&buffer};
    StageAssignment assignment;
    try {
        BoundedInput archive{buffer, stream};
        transfer(archive, assignment);
    } catch (const cereal::Exception& error) {
        return Error{Errc::Protocol,
                     std::string{"a stage's assignment does not decode: "} + error.what()};
    }
    if (buffer.left() != 0) {
        return Error{Errc::Protocol,
                     fmt::format("a stage's assignment has {} bytes too many", buffer.left())};
    }
    return assignment;
}

}  // namespace paceline
