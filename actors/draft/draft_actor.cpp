#include "actors/draft/draft_actor.hpp"

#include <limits>
#include <utility>

#include "actors/protocol/message_checks.hpp"
#include "actors/protocol/tensor_rows.hpp"
#include "ipc/base/faults.hpp"

namespace paceline {
namespace {

DraftPlan part_of(DraftPlan plan, const std::optional<StageId>& correct) {
    if (correct) plan.growth.part = GrowthPart::Trunk;
    return plan;
}

/// Positions that exist. What lies in which slot the pool checks, and layers who reads them.
constexpr TensorLimits kAnyTensor{.layers = std::numeric_limits<std::uint32_t>::max(),
                                  .context = std::numeric_limits<Position>::max(),
                                  .slot_bytes = std::numeric_limits<std::uint64_t>::max()};

}  // namespace

DraftActor::DraftActor(DraftPlan plan, DraftTools tools, std::optional<StageId> correct)
    : DraftWork{part_of(plan, correct), std::move(tools)}, correct_{correct} {
    inbox_.attach(*this);
    if (correct) outlet_.send_trunk_to(*correct);
}

bool DraftActor::expects(StageId from, msg::TensorRole role) {
    const DraftPlan& plan = host_.plan;
    const bool is_eagle = host_.model() != nullptr && host_.model()->features().expected();
    if (role == msg::TensorRole::Features) return is_eagle && from == plan.verifier;
    return skip_sets_.chooser() != nullptr && from.value >= plan.first_segment.value &&
           from.value <= plan.verifier.value;
}

/// Stale or not, the slot is released at once.
Status DraftActor::handle(StageId from, const msg::TensorNote& note) {
    if (!expects(from, note.role))
        return unexpected(from, note.role == msg::TensorRole::Features
                                    ? "features, but is no last segment beside an EAGLE draft"
                                    : "a tensor note, but is no segment whose layers are tapped");
    TensorConsumer* tensors = host_.context->tensors_from(from);
    if (tensors == nullptr) return {};
    Status taken = take(from, note, *tensors);
    const bool kept = planted(PlantedBug::FeatureSlotKept) && !host_.requests.find(note.route);
    if (!kept) tensors->release({note.tensor, note.tensor_generation});
    if (taken.ok()) pump();
    return taken;
}

Status DraftActor::take(StageId from, const msg::TensorNote& note, TensorConsumer& tensors) {
    const RequestPtr request = host_.requests.find(note.route);
    if (inbox_.peek<msg::TensorNote>(from, note.route) != Age::Current || !request) return {};
    if (Status checked = check_message(note, kAnyTensor); !checked) return checked;
    const auto bytes = msg::tensor_bytes(note);
    if (!bytes) return unexpected(from, "a tensor of no known type");
    const Result<TensorMemory> viewed =
        tensors.view_memory({note.tensor, note.tensor_generation}, *bytes);
    if (!viewed) return viewed.error();
    if (note.role != msg::TensorRole::Features)
        return skip_sets_.chooser()->taps().take(note, hidden_rows(viewed.value()));
    const Position first = note.first_position + (planted(PlantedBug::FeaturesMisplaced) ? 1 : 0);
    const bool fits = note.type == msg::TensorType::F32 && note.rows > 0 &&
                      host_.model()->features().receive(
                          *request->text, first, hidden_rows(viewed.value()), note.row_elements);
    return fits ? Status{} : unexpected(from, "features of another width than its model reads");
}

Status DraftActor::handle(StageId from, const msg::Proposal& proposal) {
    if (from != correct_ && from != host_.plan.exit) {
        return unexpected(from, "a proposal, but is neither its exit nor its correct");
    }
    const Result<RequestPtr> request = admit(from, proposal);
    if (!request) return request.error();
    if (!request.value()) return {};
    if (from == correct_) {
        request.value()->receive_branches(proposal);
    } else {
        request.value()->receive_candidates(proposal);
    }
    continue_request(request.value());
    return {};
}

}  // namespace paceline
