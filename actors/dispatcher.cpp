#include "actors/dispatcher.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "ipc/base/check.hpp"
#include "ipc/base/faults.hpp"

namespace paceline {
namespace {

// A draft that let this many turns pass in a row is taken for dead or too slow.
constexpr std::uint32_t kSilentTurnsMax = 3;

Status check_range(const char* field, std::uint32_t value, std::uint32_t low, std::uint32_t high) {
    if (value >= low && value <= high) return {};
    return Error{Errc::BadArgument, std::string{"dispatch: "} + field + " = " +
                                        std::to_string(value) + ", must be " + std::to_string(low) +
                                        " .. " + std::to_string(high)};
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
    if (options.proposal_wait < Micros{0}) {
        return Error{Errc::BadArgument,
                     "dispatch: proposal_wait = " + std::to_string(options.proposal_wait.count()) +
                         " us, must not be negative"};
    }
    return {};
}

Dispatcher::Dispatcher(DispatchOptions options, std::int32_t kv_slots)
    : options_{options}, pages_{kv_slots} {
    PACE_CHECK(validate(options).ok(), "dispatch options that were not validated");
}

Status Dispatcher::begin(const std::shared_ptr<RequestState>& state, Micros now) {
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
        lane.in_flight.clear();
        lane.ahead.reset();
        lane.answered = false;
        lane.wait_until = now + options_.proposal_wait;
        return {};
    }
    if (before != lanes_.end()) {
        lanes_.erase(before);  // gives all its slots back
        if (planted(PlantedBug::SlotsLeakOnReplay)) (void)pages_.take_spare();
    }
    Result<RequestSlots> slots = RequestSlots::make(pages_, state->spec().context);
    while (!slots && evict()) slots = RequestSlots::make(pages_, state->spec().context);
    if (!slots) return slots.error();
    lanes_.emplace(state->request(), Lane{.state = state,
                                          .slots = std::move(slots).value(),
                                          .in_flight = {},
                                          .wait_until = now + options_.proposal_wait});
    return {};
}

bool Dispatcher::holds(RequestId request) const {
    return lanes_.contains(request);
}

bool Dispatcher::has_room(RequestId request, const Request& spec) const {
    if (spec.reuse > 0 && holds(request)) return true;  // it keeps what it has
    std::int32_t pages = pages_.unreserved_pages();
    for (const auto& [id, lane] : lanes_) {
        if (id == request || lane.state->over()) pages += lane.slots.pages_held();
    }
    return pages >= pages_for(spec.context);
}

void Dispatcher::draft_changed(bool present) {
    draft_present_ = present;
    for (auto& [request, lane] : lanes_) lane.silent = 0;
}

bool Dispatcher::evict() {
    const auto oldest = std::find_if(lanes_.begin(), lanes_.end(),
                                     [](const auto& lane) { return lane.second.state->over(); });
    if (oldest == lanes_.end()) return false;
    lanes_.erase(oldest);
    return true;
}

void Dispatcher::propose(const msg::Proposal& proposal, Micros now) {
    const auto found = lanes_.find(proposal.route.request);
    if (found == lanes_.end()) return;
    if (proposal.root_position > found->second.state->tree().root().position) {
        found->second.ahead = proposal;
    } else {
        merge(found->second, proposal, now);
    }
}

void Dispatcher::merge(Lane& lane, const msg::Proposal& proposal, Micros now) {
    TokenTree& tree = lane.state->tree();
    if (lane.state->over() || proposal.root_position != tree.root().position ||
        proposal.root_token != tree.root().token) {
        ++figures_.proposals_outdated;
        return;
    }
    ++figures_.proposals_used;
    lane.answered = true;
    if (now <= lane.wait_until) lane.silent = 0;  // it would have been in time
    NodeId at = tree.root().id;
    for (std::uint32_t i = 0; i < proposal.count; ++i) {
        const std::optional<NodeId> below = tree.grow(at, proposal.tokens[i]);
        if (!below) break;  // the tree is full: the rest of the guess is lost, nothing else
        at = *below;
    }
}

void Dispatcher::follow(RequestId request, const TreeStep& step, Micros now) {
    const auto found = lanes_.find(request);
    // A late verdict on a request that was stopped, whose pages serve another by now.
    if (found == lanes_.end()) return;
    Lane& lane = found->second;
    for (const TreeNode& node : step.committed) lane.slots.commit(node.slot);
    for (const TreeNode& node : step.dropped) lane.slots.free(node.position, node.slot);
    const TokenTree& tree = lane.state->tree();
    std::erase_if(lane.in_flight, [&](const std::vector<NodeId>& nodes) {
        return std::none_of(nodes.begin(), nodes.end(),
                            [&](NodeId node) { return tree.find(node) != nullptr; });
    });
    lane.answered = false;
    lane.wait_until = now + options_.proposal_wait;
    if (lane.ahead && lane.ahead->root_position <= tree.root().position) {
        merge(lane, *std::exchange(lane.ahead, std::nullopt), now);
    }
}

std::optional<msg::Wave> Dispatcher::next_wave(Micros now) {
    // One round over all requests, beginning behind the one that was served last.
    auto lane = lanes_.upper_bound(last_served_);
    for (std::size_t i = 0; i < lanes_.size(); ++i, ++lane) {
        if (lane == lanes_.end()) lane = lanes_.begin();
        std::optional<msg::Wave> wave = wave_for(lane->second, now);
        if (!wave) continue;
        last_served_ = lane->first;
        return wave;
    }
    return std::nullopt;
}

std::optional<msg::Wave> Dispatcher::wave_for(Lane& lane, Micros now) {
    if (lane.state->over()) return std::nullopt;
    if (!lane.state->prefilled()) return prefill_wave(lane, now);
    if (!may_start(lane, now)) return std::nullopt;
    return verify_wave(lane);
}

msg::Wave Dispatcher::new_wave(Lane& lane, msg::WaveKind kind) {
    msg::Wave wave{};
    wave.route.request = lane.state->request();
    wave.route.attempt = lane.state->attempt();
    wave.wave = WaveId{lane.next_wave++};
    wave.kind = kind;
    wave.base = static_cast<Position>(lane.state->slots().size());
    wave.tensor = msg::kNoTensor;
    return wave;
}

msg::Wave Dispatcher::prefill_wave(Lane& lane, Micros now) {
    msg::Wave wave = new_wave(lane, msg::WaveKind::Prefill);
    const std::vector<TokenId>& text = lane.state->text();
    auto position = static_cast<std::size_t>(wave.base);
    while (wave.row_count < options_.prefill_rows && position + 1 < text.size()) {
        const Result<KvSlot> slot = lane.slots.name(static_cast<Position>(position));
        PACE_CHECK(slot.ok(), "a committed token finds its reserved slot taken");
        lane.slots.commit(slot.value());
        wave.rows[wave.row_count++] = {.node = TokenTree::kNobody,
                                       .parent = msg::kNoParent,
                                       .token = text[position],
                                       .position = static_cast<Position>(position),
                                       .slot = slot.value()};
        ++position;
    }
    lane.wait_until = now + options_.proposal_wait;
    return wave;
}

bool Dispatcher::waits_for_draft(const Lane& lane) const {
    if (options_.start != StartRule::Turns || !draft_present_ || lane.answered ||
        lane.silent >= kSilentTurnsMax) {
        return false;
    }
    const TreeNode& root = lane.state->tree().root();
    const bool guess_is_here = lane.state->tree().trunk_child(root.id) != nullptr;
    const bool guess_is_useless = lane.state->finish_rule().room_at(root.position + 1) <= 1;
    return lane.state->spec().gamma > 0 && !guess_is_here && !guess_is_useless;
}

bool Dispatcher::may_start(const Lane& lane, Micros now) const {
    if (lane.in_flight.size() >= options_.waves_in_flight_max) return false;
    if (!lane.in_flight.empty()) return true;  // if there are rows: verify_wave() looks
    return !waits_for_draft(lane) || now >= lane.wait_until;
}

std::vector<NodeId> Dispatcher::unsent_trunk(const Lane& lane) const {
    const TokenTree& tree = lane.state->tree();
    const FinishRule& rule = lane.state->finish_rule();
    std::vector<NodeId> nodes;
    for (const TreeNode* node = &tree.root(); node != nullptr && nodes.size() < options_.rows_max;
         node = tree.trunk_child(node->id)) {
        // A row is of use only if the token after it can still be committed.
        if (rule.room_at(node->position + 1) < 1) break;
        if (!node->sent()) nodes.push_back(node->id);
    }
    return nodes;
}

std::optional<msg::Wave> Dispatcher::verify_wave(Lane& lane) {
    const std::vector<NodeId> nodes = unsent_trunk(lane);
    if (nodes.empty()) return std::nullopt;
    if (lane.in_flight.empty() && waits_for_draft(lane)) {
        ++lane.silent;
        ++figures_.turns_waited_out;
    }
    TokenTree& tree = lane.state->tree();
    const auto id = lane.next_wave;
    msg::Wave wave = new_wave(lane, msg::WaveKind::Verify);
    std::vector<NodeId> sent;
    for (const NodeId node : nodes) {
        const Result<KvSlot> slot = lane.slots.name(tree.find(node)->position);
        if (!slot) break;  // no spare left for a sibling: it waits, the rest of its path with it
        wave.rows[wave.row_count++] = tree.send(node, slot.value());
        sent.push_back(node);
    }
    if (sent.empty()) {
        PACE_CHECK(!lane.in_flight.empty(), "the root finds no KV slot");
        lane.next_wave = id;
        return std::nullopt;
    }
    lane.in_flight.push_back(std::move(sent));
    return wave;
}

std::optional<Micros> Dispatcher::due() const {
    std::optional<Micros> soonest;
    for (const auto& [request, lane] : lanes_) {
        if (lane.state->over() || !lane.state->prefilled()) continue;
        if (!lane.in_flight.empty() || !waits_for_draft(lane)) continue;
        if (!soonest || lane.wait_until < *soonest) soonest = lane.wait_until;
    }
    return soonest;
}

std::int32_t Dispatcher::slots_in_use(RequestId request) const {
    const auto found = lanes_.find(request);
    return found == lanes_.end() ? 0 : found->second.slots.in_use();
}

}  // namespace paceline
