#include "actors/target/wave_scheduler.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>

#include "ipc/base/check.hpp"
#include "ipc/base/faults.hpp"

namespace paceline {
namespace {

// A draft that let this many waits pass in a row is taken for dead or too slow.
constexpr std::uint32_t kSilentWaitsMax = 3;
// Less probable than anything: keeps sums along a path finite.
constexpr float kLogProbMin = -1000.0F;

Status check_range(const char* field, std::uint32_t value, std::uint32_t low, std::uint32_t high) {
    if (value >= low && value <= high) return {};
    return Error{Errc::BadArgument, std::string{"dispatch: "} + field + " = " +
                                        std::to_string(value) + ", must be " + std::to_string(low) +
                                        " .. " + std::to_string(high)};
}

/// The node of `proposal` where the text that was committed behind its root ends (kBelowRoot: no
/// text was). Nothing if the text went on in another way.
std::optional<std::int16_t> follow_text(const msg::Proposal& proposal,
                                        std::span<const TokenId> text) {
    std::int16_t at = msg::kBelowRoot;
    std::size_t i = 0;
    for (const TokenId token : text) {
        while (i < proposal.count &&
               (proposal.nodes[i].parent != at || proposal.nodes[i].token != token)) {
            ++i;
        }
        if (i == proposal.count) return std::nullopt;
        at = static_cast<std::int16_t>(i++);
    }
    return at;
}

}  // namespace

Status validate(const DispatchOptions& options) {
    // A verdict carries kGammaMax accepted tokens, so a wave may not be deeper than that.
    if (Status rows = check_range("rows_max", options.rows_max, 1, kGammaMax + 1); !rows)
        return rows;
    if (Status waves =
            check_range("waves_in_flight_max", options.waves_in_flight_max, 1, kSegmentsMax);
        !waves) {
        return waves;
    }
    if (Status rows = check_range("prefill_rows", options.prefill_rows, 1, kWaveRowsMax); !rows) {
        return rows;
    }
    if (Status parts = check_range("requests_max", options.requests_max, 1, kWavePartsMax);
        !parts) {
        return parts;
    }
    if (!(options.reach_min >= 0.0F && options.reach_min <= 1.0F)) {
        return Error{Errc::BadArgument, "dispatch: reach_min = " +
                                            std::to_string(options.reach_min) + ", must be 0 .. 1"};
    }
    if (options.proposal_wait < Micros{0}) {
        return Error{Errc::BadArgument,
                     "dispatch: proposal_wait = " + std::to_string(options.proposal_wait.count()) +
                         " us, must not be negative"};
    }
    return {};
}

WaveScheduler::WaveScheduler(DispatchOptions options, std::int32_t kv_slots)
    : options_{options}, pages_{kv_slots} {
    PACE_CHECK(validate(options).ok(), "dispatch options that were not validated");
}

Status WaveScheduler::begin(const std::shared_ptr<RequestState>& state, Micros now) {
    const auto before = lanes_.find(state->request());
    const std::int32_t reuse = state->spec().reuse;
    if (reuse > 0) {
        PACE_CHECK(before != lanes_.end(), "slots reused of a request that is not here");
        Lane& lane = before->second;
        for (const TreeNode& node : lane.state->tree().nodes()) {
            if (node.sent()) lane.slots.free(node.position, node.slot);
        }
        lane.slots.cut(reuse);
        lane.state = state;
        restart(lane, now);
        return {};
    }
    if (before != lanes_.end()) {
        lanes_.erase(before);  // gives all its slots back
        if (planted(PlantedBug::SlotsLeakOnReplay)) (void)pages_.take_spare();
    }
    Result<RequestSlots> slots = RequestSlots::make(pages_, state->spec().context);
    while (!slots && evict()) slots = RequestSlots::make(pages_, state->spec().context);
    if (!slots) return slots.error();
    const auto made =
        lanes_.emplace(state->request(), Lane{.state = state, .slots = std::move(slots).value()});
    restart(made.first->second, now);
    return {};
}

/// A text begins anew: nothing was sent of it, nothing was heard of it.
void WaveScheduler::restart(Lane& lane, Micros now) const {
    lane.in_flight.clear();
    lane.heard = {};
    lane.round_root = kNever;
    lane.wait_until = now + options_.proposal_wait;
    lane.half_until.reset();
    lane.open.reset();
    lane.blocked = false;
    lane.passed = 0;
    for (auto& proposal : lane.ahead) proposal.reset();
}

bool WaveScheduler::holds(RequestId request) const {
    return lanes_.contains(request);
}

bool WaveScheduler::has_room(RequestId request, const Request& spec) const {
    if (spec.reuse > 0 && holds(request)) return true;  // it keeps what it has
    std::int32_t pages = pages_.unreserved_pages();
    for (const auto& [id, lane] : lanes_) {
        if (id == request || lane.state->over()) pages += lane.slots.pages_held();
    }
    return pages >= pages_for(spec.context);
}

void WaveScheduler::draft_changed(bool present) {
    draft_present_ = present;
    for (auto& [request, lane] : lanes_) {
        lane.silent = 0;
        if (!present) lane.half_until.reset();
    }
}

bool WaveScheduler::evict() {
    const auto oldest = std::find_if(lanes_.begin(), lanes_.end(),
                                     [](const auto& lane) { return lane.second.state->over(); });
    if (oldest == lanes_.end()) return false;
    lanes_.erase(oldest);
    return true;
}

// ---- What the draft says

void WaveScheduler::propose(const msg::Proposal& proposal, Speaker speaker, Micros now) {
    const auto found = lanes_.find(proposal.route.request);
    if (found == lanes_.end()) return;
    Lane& lane = found->second;
    if (proposal.root_position > lane.state->tree().root().position) {
        std::optional<msg::Proposal>& kept = lane.ahead[static_cast<std::size_t>(speaker)];
        const bool same_root = kept && kept->root_position == proposal.root_position;
        const msg::ProposalState before = same_root ? kept->state : proposal.state;
        kept = proposal;
        kept->state = std::max(before, proposal.state);
    } else {
        merge(lane, proposal, speaker, now);
    }
}

void WaveScheduler::merge(Lane& lane, const msg::Proposal& proposal, Speaker speaker, Micros now) {
    const std::span<const TokenId> text = lane.state->text();
    const auto at = static_cast<std::size_t>(proposal.root_position);
    if (lane.state->over() || text[at] != proposal.root_token) {
        ++proposals_.outdated;
        return;
    }
    if (speaker == Speaker::Draft) hear(lane, proposal, now);
    const std::optional<std::int16_t> top = follow_text(proposal, text.subspan(at + 1));
    if (!top) {
        ++proposals_.outdated;
        return;
    }
    ++proposals_.used;
    // Made for an older root, it had foreseen this one.
    if (lane.open && !lane.open->prepared && *top != msg::kBelowRoot) {
        lane.open->prepared = true;
        lane.open->origin = proposal.nodes[static_cast<std::size_t>(*top)].origin;
    }
    grow(lane, proposal, *top);
}

/// Notes how far the draft has come, and whether that was in time.
void WaveScheduler::hear(Lane& lane, const msg::Proposal& proposal, Micros now) const {
    const Position root = proposal.root_position;
    Heard& heard = lane.heard;
    heard.anything = std::max(heard.anything, root);
    if (proposal.state != msg::ProposalState::Growing)
        heard.halfway = std::max(heard.halfway, root);
    if (proposal.state == msg::ProposalState::Complete) {
        heard.complete = std::max(heard.complete, root);
    }
    if (heard.halfway >= lane.round_root) lane.half_until.reset();
    // Also one that is not waited for any longer: it would have been in time.
    if (now <= lane.wait_until && heard.complete >= wanted_root(lane)) lane.silent = 0;
}

/// Hangs what the proposal has below `top` under the root.
void WaveScheduler::grow(Lane& lane, const msg::Proposal& proposal, std::int16_t top) const {
    TokenTree& tree = lane.state->tree();
    std::array<NodeId, kProposalNodesMax> names{};
    names.fill(TokenTree::kNobody);
    for (std::uint32_t i = 0; i < proposal.count; ++i) {
        const msg::ProposedNode& node = proposal.nodes[i];
        if (node.parent < top) continue;
        const NodeId above =
            node.parent == top ? tree.root().id : names[static_cast<std::size_t>(node.parent)];
        // Its parent found no room, was useless, or had to make room itself.
        const TreeNode* below = tree.find(above);
        if (below == nullptr || !worth_a_row(lane, *below)) continue;
        const float log_prob = std::clamp(node.log_prob, kLogProbMin, 0.0F);
        names[i] = tree.grow(above, node.token, log_prob, node.origin).value_or(TokenTree::kNobody);
    }
}

Outcome WaveScheduler::follow(RequestId request, const TreeStep& step, Micros now) {
    const auto found = lanes_.find(request);
    // A late verdict on a request that was stopped, whose pages serve another by now.
    if (found == lanes_.end()) return {};
    Lane& lane = found->second;
    for (const TreeNode& node : step.committed) lane.slots.commit(node.slot);
    for (const TreeNode& node : step.dropped) lane.slots.free(node.position, node.slot);
    const TokenTree& tree = lane.state->tree();
    std::erase_if(lane.in_flight, [&](const std::vector<NodeId>& nodes) {
        return std::none_of(nodes.begin(), nodes.end(),
                            [&](NodeId node) { return tree.find(node) != nullptr; });
    });
    lane.wait_until = now + options_.proposal_wait;
    lane.half_until.reset();
    lane.open.reset();
    lane.blocked = false;
    if (lane.state->over()) return {};
    Outcome outcome{.prepared = step.prepared, .origin = tree.root().origin};
    outcome.open = options_.start == StartRule::Lockstep && !step.prepared && waits_for_draft(lane);
    if (outcome.open) lane.open = Outcome{};
    for (std::size_t i = 0; i < lane.ahead.size(); ++i) {
        std::optional<msg::Proposal>& ahead = lane.ahead[i];
        if (!ahead || ahead->root_position > tree.root().position) continue;
        merge(lane, *std::exchange(ahead, std::nullopt), static_cast<Speaker>(i), now);
    }
    return outcome;
}

std::vector<Outcome> WaveScheduler::take_settled() {
    return std::exchange(settled_, {});
}

bool WaveScheduler::halfway(RequestId request, Micros now) {
    const auto found = lanes_.find(request);
    if (found == lanes_.end()) return true;
    Lane& lane = found->second;
    if (lane.state->over() || (lane.half_until && now >= *lane.half_until)) {
        lane.half_until.reset();
    }
    return !lane.half_until;
}

// ---- Waiting

/// The root of which the draft must have said all before the next wave starts.
Position WaveScheduler::wanted_root(const Lane& lane) const {
    switch (options_.start) {
        case StartRule::AtOnce:
            return kNever;
        case StartRule::Turns:
            return lane.state->tree().root().position;
        case StartRule::Lockstep:
            return lane.round_root;  // it began that round together with the last wave
    }
    return kNever;
}

/// Whether something that the draft may say in time is worth more than starting now.
bool WaveScheduler::waits_for_draft(const Lane& lane) const {
    if (!draft_present_ || lane.silent >= kSilentWaitsMax || lane.state->spec().gamma == 0) {
        return false;
    }
    const TreeNode& root = lane.state->tree().root();
    const bool guess_is_useless = lane.state->finish_rule().room_at(root.position + 1) <= 1;
    if (guess_is_useless || lane.heard.complete >= wanted_root(lane)) return false;
    if (options_.start != StartRule::Turns) return true;
    // What was prepared for this root goes at once, unless the draft is still adding to it.
    const bool growing = lane.heard.anything >= root.position;
    return growing || lane.state->tree().trunk_child(root.id) == nullptr;
}

std::optional<Micros> WaveScheduler::due() const {
    std::optional<Micros> soonest;
    const auto at = [&](Micros when) {
        if (!soonest || when < *soonest) soonest = when;
    };
    for (const auto& [request, lane] : lanes_) {
        if (lane.state->over() || !lane.state->prefilled()) continue;
        if (lane.half_until) at(*lane.half_until);
        if (lane.in_flight.empty() && waits_for_draft(lane)) at(lane.wait_until);
    }
    return soonest;
}

std::int32_t WaveScheduler::slots_in_use(RequestId request) const {
    const auto found = lanes_.find(request);
    return found == lanes_.end() ? 0 : found->second.slots.in_use();
}

}  // namespace paceline
