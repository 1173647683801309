#include "runtime/cluster/remote_node.hpp"

#include <algorithm>
#include <cstring>
#include <fmt/core.h>
#include <memory>
#include <utility>

#include "ipc/wire/cancel_board.hpp"
#include "runtime/cluster/agent_stages.hpp"
#include "runtime/cluster/node_memory.hpp"
#include "runtime/observe/trace_copy.hpp"

namespace paceline {
namespace {

remote::StageKey key_of(Incarnation who) {
    return {who.id, who.epoch};
}
Incarnation incarnation_of(remote::StageKey who) {
    return {who.stage, who.epoch};
}

Errc code_of(std::int64_t number) {
    const bool known = number >= 0 && number <= static_cast<std::int64_t>(Errc::System);
    return known ? static_cast<Errc>(number) : Errc::Protocol;
}

}  // namespace

RemoteNode::~RemoteNode() {
    // Those that have not ended by now are killed there, as LocalNode kills them here.
    for (const auto& [who, stage] : stages_) {
        post([key = key_of(who)](LinkSide& side) { side.link.say(remote::Kill{key}); });
    }
}

RemoteNode::Stage* RemoteNode::find(Incarnation who) {
    const auto found = stages_.find(who);
    return found == stages_.end() ? nullptr : &found->second;
}

std::string RemoteNode::title(Incarnation who) const {
    const auto found = stages_.find(who);
    if (found == stages_.end()) return "a stage of machine '" + name_ + "' that is gone";
    const std::string process =
        found->second.pid == 0 ? "" : fmt::format(", process {}", found->second.pid);
    return fmt::format("stage '{}' (machine '{}'{})", found->second.process.name, name_, process);
}

// ---- what the supervisor wants ----

Status RemoteNode::start(Incarnation who,
                         const ProcessSpec& process,
                         const std::vector<std::string>& command) {
    // An agent starts its own program alone.
    if (!command.empty())
        return Error{Errc::Unsupported, "a stage of another machine with a command of its own"};
    roll_.start(who);
    stages_[who] = Stage{process, {}, 0};
    return {};  // with its Assign, which has its telemetry block
}

Status RemoteNode::send(Incarnation who,
                        const control::Message& message,
                        std::span<const int> files,
                        std::chrono::milliseconds limit,
                        Envelope envelope) {
    if (!roll_.reaches(who)) return Error{Errc::PeerGone, title(who) + " is gone"};
    const auto limit_ms = static_cast<std::uint32_t>(limit.count());
    if (const auto* assign_message = std::get_if<control::Assign>(&message))
        return assign(who, *assign_message, files);
    if (const auto* wire = std::get_if<control::Wire>(&message))
        return send_channels(who, *wire, files, limit_ms);
    if (const auto* rewire = std::get_if<control::Rewire>(&message))
        return send_channels(who, *rewire, files, limit_ms);
    if (!files.empty())
        return Error{Errc::Unsupported, "descriptors for a stage of another machine"};
    post_control(who, message, {}, limit_ms, envelope);
    if (const auto* unwire = std::get_if<control::Unwire>(&message)) drop(who, unwire->peers);
    return {};
}

void RemoteNode::post_control(Incarnation who,
                              const control::Message& message,
                              std::vector<std::uint64_t> files,
                              std::uint32_t limit_ms,
                              Envelope envelope) {
    remote::StageControl frame{
        key_of(who), envelope,         static_cast<std::uint16_t>(control::type_of(message)),
        limit_ms,    std::move(files), control::encode(message)};
    post([frame = std::move(frame)](LinkSide& side) { side.link.say(frame); });
}

void RemoteNode::ask_figures() {
    if (!roll_.is_connected() || stages_.empty()) return;
    post([ask = remote::CountersAsk{++figures_asked_}](LinkSide& side) { side.link.say(ask); });
}

/// With the first message of a stage its process is started there.
Status RemoteNode::assign(Incarnation who,
                          const control::Assign& message,
                          std::span<const int> files) {
    Stage& stage = *find(who);
    if (files.size() != 2) return Error{Errc::Protocol, "an assignment brings two memory files"};
    Result<ShmRegion> telemetry = ShmRegion::attach(files[0], kTelemetryBlockBytes);
    if (!telemetry.ok()) return telemetry.error();
    const Result<StageTelemetryView> view = StageTelemetryView::attach(files[0]);
    if (!view.ok()) return view.error();
    stage.telemetry = std::move(telemetry).value();
    if (!std::exchange(has_board_, true)) {
        Result<ShmRegion> memory = ShmRegion::attach(files[1], 1);
        if (!memory.ok()) return memory.error();
        Result<CancelBoard> board = CancelBoard::attach(std::move(memory).value());
        if (!board.ok()) return board.error();
        auto shared = std::make_shared<CancelBoard>(std::move(board).value());
        post([shared](LinkSide& side) { side.board.emplace(shared); });
    }
    remote::StartStage order;
    order.who = key_of(who);
    order.actors = stage.process.actors;
    order.name = stage.process.name;
    order.cores.assign(stage.process.cores.begin(), stage.process.cores.end());
    order.stop_grace_ms = static_cast<std::uint32_t>(slot_.stop_grace().count());
    order.trace_events = trace_capacity_of(stage.telemetry.bytes());
    order.spec = encode(StageOrigin{stage.process.on_death, view.value().snapshot().jobs});
    post([order = std::move(order)](LinkSide& side) { side.link.say(order); });
    post_control(who, message, {kOwnTelemetryId, kBoardId}, 10'000);
    return {};
}

template <class Wired>
Status RemoteNode::send_channels(Incarnation who,
                                 Wired wired,
                                 std::span<const int> files,
                                 std::uint32_t limit_ms) {
    if constexpr (std::is_same_v<Wired, control::Rewire>) drop(who, wired.peers);
    const auto home = [this](StageId actor) -> std::optional<remote::StageKey> {
        // The newest incarnation comes last.
        for (auto each = stages_.rbegin(); each != stages_.rend(); ++each) {
            const std::vector<StageId>& actors = each->second.process.actors;
            if (std::find(actors.begin(), actors.end(), actor) != actors.end())
                return key_of(each->first);
        }
        return std::nullopt;
    };
    Result<RemoteChannels::Plan> plan = channels_.plan(key_of(who), wired, files, home);
    if (!plan.ok()) return plan.error();
    for (const auto& [number, edge] : plan.value().relayed) edges_[number] = {who, edge};
    auto shared = std::make_shared<RemoteChannels::Plan>(std::move(plan).value());
    std::vector<std::uint64_t> ids = shared->ids;
    post([shared](LinkSide& side) {
        for (auto& [number, end] : shared->ends) side.relay.add(number, std::move(end));
        if (!shared->make.memories.empty()) side.link.say(shared->make);
    });
    post_control(who, wired, std::move(ids), limit_ms);
    return {};
}

void RemoteNode::drop(Incarnation who, std::span<const StageId> peers) {
    RemoteChannels::Dropped dropped = channels_.drop(key_of(who), peers);
    for (const std::uint32_t edge : dropped.edges) edges_.erase(edge);
    post([dropped = std::move(dropped)](LinkSide& side) {
        for (const std::uint32_t edge : dropped.edges) side.relay.drop(edge);
        if (!dropped.memory.ids.empty()) side.link.say(dropped.memory);
    });
}

void RemoteNode::kill(Incarnation who) {
    if (find(who) == nullptr) return;
    post([key = key_of(who)](LinkSide& side) { side.link.say(remote::Kill{key}); });
}

Status RemoteNode::wake_with(const MakeBell& bells) {
    Result<Doorbell> bell = bells();
    if (!bell.ok()) return bell.error();
    slot_.wake_with(std::move(bell).value());
    return {};
}

// ---- what the machine says ----

void RemoteNode::poll() {
    // Before the machine's return, which starts only stages that are known to wait for it.
    give_up_unstarted();
    for (const NodeEvent& event : slot_.take_events())
        std::visit([this](const auto& each) { take(each); }, event);
    give_up_unstarted();
}

/// Those that were to be started while the machine was away.
void RemoteNode::give_up_unstarted() {
    roll_.give_up_unstarted();
    tell_news();
}

void RemoteNode::tell_news() {
    using What = NodeRoll::News::What;
    while (const std::optional<NodeRoll::News> news = roll_.next()) {
        switch (news->what) {
            case What::Silent:
                events_.on_silence(news->who, Error{Errc::System, news->why});
                break;
            case What::Lost:
                stages_.erase(news->who);
                if (events_.on_machine_lost) events_.on_machine_lost(news->who, news->why);
                break;
            case What::Back:
                if (events_.on_machine_back) events_.on_machine_back(news->who.id);
                break;
        }
    }
}

void RemoteNode::take(const LinkLost& lost) {
    roll_.link_lost(lost.why);
    tell_news();
}

void RemoteNode::take(const LeaseEnded& ended) {
    channels_ = {};
    edges_.clear();
    roll_.lease_ended(ended.why);
    stages_.clear();
    tell_news();
}

void RemoteNode::take(const LinkBack& back) {
    epoch_ = back.node_epoch;
    figures_had_ = figures_asked_;  // the connection that could answer is over
    has_board_ = false;
    channels_ = {};
    roll_.link_back(back.node_epoch);
    tell_news();
}

/// As if the stage whose place the relay takes had found it broken.
void RemoteNode::take(const EdgeBroken& broken) {
    const auto found = edges_.find(broken.edge);
    if (found == edges_.end()) return;
    const auto [who, edge] = found->second;
    if (find(who) == nullptr) return;
    events_.on_message(who,
                       {control::EdgeFault{edge.peer, edge.peer_epoch, broken.error.what}, {}, {}});
}

void RemoteNode::take(const remote::StageReport& report) {
    using What = remote::StageReport::What;
    const Incarnation who = incarnation_of(report.who);
    Stage* stage = find(who);
    if (stage == nullptr) return;
    switch (report.what) {
        case What::Started:
            stage->pid = report.number;
            return;
        case What::Ended:
            drop(who, {});
            stages_.erase(who);
            roll_.ended(who);
            return events_.on_exit(who, report.number != 0,
                                   fmt::format("machine '{}': {}", name_, report.text));
        case What::Silent:
            roll_.silence(who);
            return events_.on_silence(who, Error{code_of(report.number), report.text});
        case What::Hung:
            if (events_.on_hung) events_.on_hung(who, report.text);
            return;
        case What::Stopped:
            if (events_.on_stopped) events_.on_stopped(who, report.number != 0);
            return;
        case What::Unpinned:
            if (events_.on_unpinned) events_.on_unpinned(who, static_cast<int>(report.number));
            return;
        case What::Line:
            if (events_.on_line) events_.on_line(who, report.text);
            return;
        case What::Flushed:
            if (events_.on_flushed) events_.on_flushed(who);
            return;
    }
}

void RemoteNode::take(const remote::StageControl& control) {
    const Incarnation who = incarnation_of(control.who);
    if (!roll_.accepts(who)) return;
    Result<control::Message> message = control::decode(control.type, control.body);
    if (!message.ok()) {
        roll_.silence(who);
        return events_.on_silence(who, message.error());
    }
    events_.on_message(who, {std::move(message).value(), {}, control.envelope});
}

void RemoteNode::take(const remote::Counters& counters) {
    // Before round trips have told it, its clock is behind by what the frame took, which is less
    // than a figure shows.
    using std::chrono::nanoseconds;
    const nanoseconds shift =
        counters.ahead_ns != 0
            ? nanoseconds{counters.ahead_ns}
            : lease_clock() - nanoseconds{static_cast<std::int64_t>(counters.sampled_ns)};
    for (const remote::StageCounters& each : counters.stages) {
        Stage* stage = find(incarnation_of(each.who));
        TelemetryBlock block{};
        if (stage == nullptr || stage->telemetry.bytes().empty() ||
            each.block.size() != block.size())
            continue;
        std::copy(each.block.begin(), each.block.end(), block.begin());
        // A block that does not fit shows no figures.
        (void)write_telemetry_block(stage->telemetry.bytes(), block, shift);
        std::vector<TraceEvent> events(each.events.size() / sizeof(TraceEvent));
        if (events.empty()) continue;
        std::memcpy(events.data(), each.events.data(), events.size() * sizeof(TraceEvent));
        append_trace(stage->telemetry.bytes(), events, shift);
    }
    if (counters.answers != 0) figures_had_ = counters.answers;
}

}  // namespace paceline
