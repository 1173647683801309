#include "runtime/cluster/agent_stages.hpp"

#include <algorithm>
#include <cstring>
#include <fmt/core.h>
#include <utility>
#include <variant>

#include "runtime/cluster/lease.hpp"
#include "runtime/parent/local_node.hpp"

namespace paceline {
namespace {

using What = remote::StageReport::What;

constexpr std::chrono::milliseconds kCheckInterval{10};  // of deadlines, as in hang_check.cpp
constexpr std::chrono::milliseconds kLateCheck{1'000};
constexpr int kFramesOfTraceMax = 80;  // 64 hold the trace of a default ring

remote::StageKey key_of(Incarnation who) {
    return {who.id, who.epoch};
}
Incarnation incarnation_of(remote::StageKey who) {
    return {who.stage, who.epoch};
}

std::string cut(std::string text) {
    text.resize(std::min<std::size_t>(text.size(), remote::kTextBytesMax));
    return text;
}

}  // namespace

// ---- the origin of a stage: on_death, then the job records as three words each ----

std::vector<std::byte> encode(const StageOrigin& origin) {
    std::vector<std::byte> bytes{static_cast<std::byte>(origin.on_death)};
    const auto put = [&bytes](std::uint32_t word) {
        for (int shift = 0; shift < 32; shift += 8)
            bytes.push_back(static_cast<std::byte>(word >> shift & 0xffU));
    };
    for (const JobRecord& job : origin.jobs) {
        put(job.longest_us);
        put(job.most_rows);
        put(job.longest_of_most_us);
    }
    return bytes;
}

Result<StageOrigin> decode_origin(std::span<const std::byte> bytes) {
    StageOrigin origin;
    const std::size_t wanted = 1 + origin.jobs.size() * 3 * sizeof(std::uint32_t);
    if (bytes.size() != wanted || bytes[0] > static_cast<std::byte>(OnDeath::RebuildChain)) {
        return Error{Errc::Protocol, fmt::format("the origin of a stage has {} bytes, not {}",
                                                 bytes.size(), wanted)};
    }
    origin.on_death = static_cast<OnDeath>(bytes[0]);
    std::size_t at = 1;
    const auto take = [&] {
        std::uint32_t word = 0;
        for (int shift = 0; shift < 32; shift += 8)
            word |= static_cast<std::uint32_t>(bytes[at++]) << shift;
        return word;
    };
    for (JobRecord& job : origin.jobs) {
        job.longest_us = take();
        job.most_rows = take();
        job.longest_of_most_us = take();
    }
    return origin;
}

// ---- the stages ----

Result<std::unique_ptr<AgentStages>> AgentStages::create(NodeLink& link,
                                                         NodeMemory& memory,
                                                         CheckAssignment check,
                                                         std::vector<int> cores) {
    std::unique_ptr<AgentStages> stages{
        new AgentStages{link, memory, std::move(check), std::move(cores)}};
    Result<std::unique_ptr<NodeAgent>> node = make_local_node(stages->handlers(), false);
    if (!node.ok()) return node.error();
    stages->node_ = std::move(node).value();
    return stages;
}

AgentStages::~AgentStages() {
    node_.reset();  // kills and reaps
}

AgentStages::Stage* AgentStages::find(Incarnation who) {
    const auto found = stages_.find(who);
    return found == stages_.end() ? nullptr : &found->second;
}

void AgentStages::report(Incarnation who, What what, std::int64_t number, std::string text) {
    link_.say(remote::StageReport{key_of(who), what, number, cut(std::move(text))});
}

NodeEvents AgentStages::handlers() {
    NodeEvents events;
    events.on_message = [this](Incarnation who, ControlSocket::Received received) {
        on_message(who, std::move(received));
    };
    events.on_silence = [this](Incarnation who, const Error& error) {
        report(who, What::Silent, static_cast<std::int64_t>(error.code), error.what);
    };
    events.on_flushed = [this](Incarnation who) {
        if (Doorbell* bell = memory_.bell_of(key_of(who))) bell->announce();
    };
    events.on_unpinned = [this](Incarnation who, int error) {
        report(who, What::Unpinned, error, "");
    };
    events.on_stopped = [this](Incarnation who, bool stopped) {
        if (Stage* stage = find(who)) stage->watch.stopped(stopped, polled_at_);
        report(who, What::Stopped, stopped ? 1 : 0, "");
    };
    events.on_exit = [this](Incarnation who, bool well, const std::string& how) {
        Stage* stage = find(who);
        link_.say(counters(polled_at_));
        if (stage != nullptr) say_events(*stage);
        const bool refused = stage != nullptr && !stage->refusal.empty();
        report(who, What::Ended, well ? 1 : 0, refused ? how + ": " + stage->refusal : how);
        stages_.erase(who);
    };
    events.on_line = [this](Incarnation who, std::string_view line) {
        report(who, What::Line, 0, std::string{line});
    };
    return events;
}

void AgentStages::start(const remote::StartStage& order) {
    const Incarnation who = incarnation_of(order.who);
    const Status started = try_start(order);
    if (started.ok()) {
        report(who, What::Started, node_->pid(who), "");
        return;
    }
    stages_.erase(who);
    report(who, What::Ended, 0, started.error().what);
}

Status AgentStages::try_start(const remote::StartStage& order) {
    const Incarnation who = incarnation_of(order.who);
    if (stages_.contains(who)) return Error{Errc::Protocol, "an incarnation is started twice"};
    const Result<StageOrigin> origin = decode_origin(order.spec);
    if (!origin.ok()) return origin.error();
    Result<ShmFile> file = StageTelemetry::create(order.who.stage, order.who.epoch, order.name,
                                                  order.trace_events, origin.value().jobs);
    if (!file.ok()) return file.error();
    Result<ShmRegion> memory = ShmRegion::attach(file.value().fd(), kTelemetryBlockBytes);
    if (!memory.ok()) return memory.error();
    Result<StageTelemetryView> view = StageTelemetryView::attach(file.value().fd());
    if (!view.ok()) return view.error();
    ProcessSpec process{.id = order.who.stage, .actors = order.actors, .name = order.name};
    process.on_death = origin.value().on_death;
    for (const std::uint32_t core : order.cores) {
        if (!cores_.empty()) process.cores.push_back(cores_[core % cores_.size()]);
    }
    stages_.emplace(who, Stage{order.actors, std::move(file).value(), std::move(memory).value(),
                               std::move(view).value(),
                               StageWatch{std::chrono::milliseconds{order.stop_grace_ms}}});
    return node_->start(who, process, {});
}

void AgentStages::kill(const remote::Kill& order) {
    node_->kill(incarnation_of(order.who));
}

/// Tells the conductor what a stage itself would have told of a failure, and ends it.
void AgentStages::fail(Incarnation who, const Error& error) {
    const control::Message failed =
        control::Failed{static_cast<std::uint8_t>(error.code), cut(error.what)};
    link_.say(remote::StageControl{key_of(who),
                                   {},
                                   static_cast<std::uint16_t>(control::type_of(failed)),
                                   0,
                                   {},
                                   control::encode(failed)});
    if (Stage* stage = find(who)) stage->refusal = error.what;
    node_->kill(who);
}

Status AgentStages::pass_on(const remote::StageControl& order) {
    const Incarnation who = incarnation_of(order.who);
    Stage* stage = find(who);
    if (stage == nullptr) return {};  // it has ended, which the conductor will learn
    Result<control::Message> message = control::decode(order.type, order.body);
    if (!message.ok()) return message.error();
    const Result<std::vector<int>> files = memory_.files(order.files, stage->telemetry_file.fd());
    if (!files.ok()) return files.error();
    if (auto* assign = std::get_if<control::Assign>(&message.value()); assign && check_) {
        Result<std::vector<std::byte>> checked = check_(assign->payload);
        if (!checked.ok()) {
            fail(who, checked.error());
            return {};
        }
        assign->payload = std::move(checked).value();
    }
    // If it cannot be sent, the stage is silent, which was reported by then.
    const Status sent = node_->send(who, message.value(), files.value(),
                                    std::chrono::milliseconds{order.limit_ms}, order.envelope);
    Doorbell* bell = memory_.bell_of(order.who);
    if (sent.ok() && bell != nullptr) bell->announce();
    return {};
}

void AgentStages::on_message(Incarnation who, ControlSocket::Received received) {
    Stage* stage = find(who);
    if (stage == nullptr) return;
    if (std::holds_alternative<control::Ready>(received.message)) stage->ready = true;
    if (const auto* offer = std::get_if<control::EdgeOffer>(&received.message))
        return on_offer(*offer, received.files);
    link_.say(remote::StageControl{key_of(who),
                                   received.envelope,
                                   static_cast<std::uint16_t>(control::type_of(received.message)),
                                   0,
                                   {},
                                   control::encode(received.message)});
}

/// Both ends are stages of this machine: no other edge has a link.
void AgentStages::on_offer(const control::EdgeOffer& offer, std::span<const OwnedFd> files) {
    std::vector<int> descriptors;
    for (const OwnedFd& file : files) descriptors.push_back(file.get());
    for (const auto& [who, stage] : stages_) {
        const bool hosts =
            std::find(stage.actors.begin(), stage.actors.end(), offer.from) != stage.actors.end();
        if (!hosts || who.epoch != offer.from_epoch) continue;
        const Status sent =
            node_->send(who, offer, descriptors, std::chrono::milliseconds{10'000}, {});
        Doorbell* bell = memory_.bell_of(key_of(who));
        if (sent.ok() && bell != nullptr) bell->announce();
        return;
    }
}

void AgentStages::poll(Nanos now) {
    const Nanos before = std::exchange(polled_at_, now);
    const Nanos gap = now - before;
    if (before.count() != 0 && gap > kLateCheck) {
        for (auto& [who, stage] : stages_) stage.watch.paused(now, gap);
    }
    node_->poll();
    look_for_hangs(now);
}

void AgentStages::look_for_hangs(Nanos now) {
    if (now - looked_at_ < kCheckInterval) return;
    looked_at_ = now;
    for (auto& [who, stage] : stages_) {
        if (!stage.ready || stage.reported) continue;
        const std::optional<std::string> complaint =
            stage.watch.complaint(stage.telemetry.snapshot(), now);
        if (!complaint) continue;
        stage.reported = true;
        report(who, What::Hung, 0, *complaint);
    }
}

/// As many as fit into a frame, the oldest first; none while its stage appends some just now.
std::vector<std::byte> AgentStages::new_events(Stage& stage) {
    const std::uint64_t end = stage.telemetry.traced();
    if (end == stage.events_sent) return {};
    const std::vector<TraceEvent> all = stage.telemetry.trace();
    if (stage.telemetry.traced() != end) return {};
    const std::size_t fresh = static_cast<std::size_t>(
        std::min<std::uint64_t>(all.size(), end - std::min(end, stage.events_sent)));
    const std::size_t count =
        std::min<std::size_t>(fresh, remote::kTraceBytesMax / sizeof(TraceEvent));
    const auto bytes = std::as_bytes(std::span{all}.last(fresh).first(count));
    stage.events_sent = end - (fresh - count);
    return {bytes.begin(), bytes.end()};
}

remote::Counters AgentStages::counters(Nanos now) {
    remote::Counters counters{static_cast<std::uint64_t>(now.count()), clock_ahead_.count(), 0, {}};
    for (auto& [who, stage] : stages_) {
        const Result<TelemetryBlock> block = read_telemetry_block(stage.telemetry_memory.bytes());
        if (!block.ok()) continue;
        remote::StageCounters each{key_of(who), {}, new_events(stage)};
        each.block.assign(block.value().begin(), block.value().end());
        counters.stages.push_back(std::move(each));
    }
    return counters;
}

/// Of one stage, all that it has traced. Bounded: it, or what it forked, may still write.
void AgentStages::say_events(const Stage& of) {
    for (int i = 0; i < kFramesOfTraceMax; ++i) {
        if (of.events_sent == of.telemetry.traced()) return;
        link_.say(counters(polled_at_));
    }
}

void AgentStages::answer(const remote::CountersAsk& ask) {
    for (const auto& [who, stage] : stages_) say_events(stage);
    remote::Counters last = counters(lease_clock());
    last.answers = ask.number;
    link_.say(std::move(last));
}

void AgentStages::blame(remote::StageKey who, const Error& error) {
    const Incarnation whom = incarnation_of(who);
    if (find(whom) == nullptr) return;
    report(whom, What::Silent, static_cast<std::int64_t>(error.code), error.what);
}

}  // namespace paceline
