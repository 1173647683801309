#include "runtime/loop/actor_host.hpp"

#include <fmt/core.h>
#include <new>
#include <string>
#include <utility>

#include "ipc/base/check.hpp"
#include "ipc/base/faults.hpp"
#include "ipc/wire/hot_kinds.hpp"

namespace paceline {

/// A channel between two actors of one process: bounded like a ring, but a queue.
struct ActorHost::Channel {
    struct alignas(kLineBytes) Line {
        std::byte bytes[kLineBytes];
    };

    /// `slots`: memory of a device for the slots of the pool; nullptr: they are beside their states.
    Channel(const EdgeSpec& s, std::shared_ptr<std::byte> slots)
        : spec{s}, device_slots{std::move(slots)} {
        if (spec.tensor_slots == 0) return;
        const PoolData data = device_slots ? PoolData::Elsewhere : PoolData::Here;
        const Result<std::size_t> bytes = pool_bytes(spec.tensor_slots, spec.tensor_bytes, data);
        PACE_CHECK(bytes.ok(), "a local tensor pool of impossible size");
        memory = std::vector<Line>(bytes.value() / sizeof(Line));
        const std::span<std::byte> span{memory.front().bytes, bytes.value()};
        format_pool(span, spec.tensor_slots, spec.tensor_bytes, data);
        producer.emplace(TensorProducer::attach_memory(span).value());
        consumer.emplace(TensorConsumer::attach_memory(span).value());
        if (!device_slots) return;
        producer->use_memory(device_slots.get());
        consumer->use_memory(device_slots.get());
    }

    [[nodiscard]] bool has_room(Urgency urgency) const {
        const std::uint32_t reserved = urgency == Urgency::Urgent ? 0 : spec.urgent_slots;
        return waiting + reserved < spec.ring_slots;
    }

    EdgeSpec spec;
    std::uint32_t waiting = 0;  // messages sent and not yet handled
    bool wants_room = false;
    bool wants_slot = false;
    std::vector<Line> memory;
    std::shared_ptr<std::byte> device_slots;
    std::optional<TensorProducer> producer;
    std::optional<TensorConsumer> consumer;
};

namespace {

/// Memory for the slots of a channel whose tensors stay on the device of the process.
Result<std::shared_ptr<std::byte>> device_slots(const EdgeSpec& spec, TensorDevice* device) {
    const std::string who = fmt::format("transport {} of stage {} -> stage {}",
                                        name_of(spec.transport), spec.from.value, spec.to.value);
    if (spec.transport != Transport::Local) {
        return Error{Errc::Protocol, who + ": both stages are in one process"};
    }
    if (device == nullptr) return Error{Errc::Protocol, who + ": this process has no device"};
    Result<std::shared_ptr<std::byte>> memory =
        device->allocate(spec.tensor_slots * pool_stride(spec.tensor_bytes));
    if (!memory.ok()) return Error{memory.error().code, who + ": " + memory.error().what};
    return memory;
}

}  // namespace

class ActorHost::HostedContext final : public StageContext {
public:
    HostedContext(ActorHost& host, StageId self, Epoch epoch)
        : host_{host}, self_{self}, epoch_{epoch} {}

    [[nodiscard]] StageId self() const override { return self_; }
    [[nodiscard]] Epoch epoch() const override { return epoch_; }
    [[nodiscard]] Epoch epoch_of(StageId peer) const override {
        const Hosted* here = host_.find(peer);
        return here != nullptr ? here->epoch : host_.outside_.epoch_of(self_, peer);
    }
    [[nodiscard]] Micros now() const override { return host_.outside_.now(); }
    [[nodiscard]] Push send(StageId to,
                            std::uint16_t kind,
                            std::span<const std::byte> bytes) override {
        if (host_.hosts(to)) return host_.send(self_, to, kind, bytes);
        return host_.outside_.send(self_, to, kind, bytes);
    }
    void post(StageId to, const control::Message& message) override {
        if (host_.hosts(to)) {
            host_.queue_control(to, self_, message);
        } else {
            host_.outside_.post(self_, to, message);
        }
    }
    void schedule(Micros delay, std::function<void()> wake) override {
        host_.timers_.push({now() + delay, host_.timer_order_++, std::move(wake)});
    }
    void submit(const JobLabel& label,
                std::function<JobOutcome()> work,
                std::function<void(JobOutcome)> done) override {
        ++host_.jobs_submitted_;
        host_.jobs_.push_back({self_, label, std::move(work), std::move(done)});
    }
    [[nodiscard]] std::uint64_t random() override { return host_.outside_.random(); }
    void trace(TraceEvent event) override { host_.outside_.trace(event); }
    void count(Counter counter, std::uint64_t add) override { host_.outside_.count(counter, add); }
    void set(Gauge gauge, std::uint64_t value) override { host_.outside_.set(gauge, value); }
    [[nodiscard]] const std::atomic<std::uint64_t>* cancel_word(RequestId request) override {
        return host_.outside_.cancel_word(request);
    }
    void cancel_before(RequestId request, Attempt valid) override {
        host_.outside_.cancel_before(request, valid);
    }
    [[nodiscard]] const WatermarkCell* watermark_cell(RequestId request) override {
        return host_.outside_.watermark_cell(request);
    }
    void publish_watermark(RequestId request,
                           Attempt attempt,
                           Position position,
                           TokenId token) override {
        host_.outside_.publish_watermark(request, attempt, position, token);
    }
    [[nodiscard]] TensorProducer* tensors_to(StageId to) override {
        if (!host_.hosts(to)) return host_.outside_.tensors_to(self_, to);
        Channel* channel = host_.find_channel(self_, to);
        return channel != nullptr && channel->producer ? &*channel->producer : nullptr;
    }
    [[nodiscard]] TensorConsumer* tensors_from(StageId from) override {
        if (!host_.hosts(from)) return host_.outside_.tensors_from(self_, from);
        Channel* channel = host_.find_channel(from, self_);
        return channel != nullptr && channel->consumer ? &*channel->consumer : nullptr;
    }
    void excuse_loss(StageId stage) override { host_.outside_.excuse_loss(stage); }
    void report_fault(StageId peer, Error error) override {
        if (host_.hosts(peer)) return host_.fail(std::move(error));
        host_.outside_.report_fault(self_, peer, std::move(error));
    }
    void fail(Error error) override { host_.fail(std::move(error)); }
    void stop() override { host_.stop(); }

private:
    ActorHost& host_;
    StageId self_;
    Epoch epoch_;
};

template <class Call>
void ActorHost::guarded(Call call) {
    try {
        call();
    } catch (const std::bad_alloc&) {
        fail({Errc::OutOfMemory, "out of memory"});
    }
}

ActorHost::ActorHost(Outside& outside, Channels channels)
    : outside_{outside}, channels_policy_{channels} {}
ActorHost::~ActorHost() = default;

void ActorHost::add(StageId id, Epoch epoch, Actor& actor) {
    PACE_CHECK(find(id) == nullptr, "two actors under one address");
    auto context = std::make_unique<HostedContext>(*this, id, epoch);
    hosted_.push_back(std::make_unique<Hosted>(Hosted{id, epoch, &actor, std::move(context), {}}));
}

Status ActorHost::connect(const EdgeSpec& spec, TensorDevice* device) {
    PACE_CHECK(find(spec.from) != nullptr, "a channel from an actor that is not here");
    PACE_CHECK(find(spec.to) != nullptr, "a channel to an actor that is not here");
    PACE_CHECK(find_channel(spec.from, spec.to) == nullptr, "a channel is connected twice");
    PACE_CHECK(spec.urgent_slots < spec.ring_slots, "a channel reserves all of its slots");
    std::shared_ptr<std::byte> slots;
    if (spec.transport != Transport::Host) {
        Result<std::shared_ptr<std::byte>> made = device_slots(spec, device);
        if (!made.ok()) return made.error();
        slots = std::move(made).value();
    }
    channels_.push_back(std::make_unique<Channel>(spec, std::move(slots)));
    return {};
}

void ActorHost::start() {
    if (started_) {
        if (outcome_.ok()) ended_ = false;  // an actor had stopped the loop in good order
        return;
    }
    started_ = true;
    for (const auto& hosted : hosted_) {
        if (!ended_) guarded([&] { hosted->actor->on_start(*hosted->context); });
    }
}

ActorHost::Hosted* ActorHost::find(StageId id) const {
    for (const auto& hosted : hosted_) {
        if (hosted->id == id) return hosted.get();
    }
    return nullptr;
}

ActorHost::Channel* ActorHost::find_channel(StageId from, StageId to) const {
    for (const auto& channel : channels_) {
        if (channel->spec.from == from && channel->spec.to == to) return channel.get();
    }
    return nullptr;
}

ActorHost::Channel& ActorHost::channel(StageId from, StageId to) {
    if (Channel* found = find_channel(from, to)) return *found;
    PACE_CHECK(channels_policy_ == Channels::OnDemand,
               "a message to an actor without a channel to it");
    EdgeSpec spec;
    spec.from = from;
    spec.to = to;
    const Status connected = connect(spec);
    PACE_CHECK(connected.ok(), "a channel without tensors needs no device");
    return *channels_.back();
}

Push ActorHost::send(StageId from,
                     StageId to,
                     std::uint16_t kind,
                     std::span<const std::byte> bytes) {
    const KindRule* rule = find_rule(kHotKinds, kind);
    PACE_CHECK(rule != nullptr, "a message of a kind that does not exist");
    PACE_CHECK(bytes.size() >= rule->bytes_min, "a message shorter than its kind");
    PACE_CHECK(bytes.size() <= rule->bytes_max, "a message longer than its kind");
    Channel& edge = channel(from, to);
    if (!edge.has_room(rule->urgency)) {
        edge.wants_room = true;
        return Push::Full;
    }
    ++edge.waiting;
    find(to)->inbox.emplace_back(HotMail{&edge, kind, {bytes.begin(), bytes.end()}});
    return Push::Ok;
}

void ActorHost::handle(StageId to,
                       StageId from,
                       std::uint16_t kind,
                       std::span<const std::byte> bytes) {
    Hosted* hosted = find(to);
    PACE_CHECK(hosted != nullptr, "a message for an actor that is not here");
    if (ended_) return;
    guarded([&] { hosted->actor->handle(from, kind, bytes); });
}

void ActorHost::control(StageId to, StageId from, const control::Message& message) {
    Hosted* hosted = find(to);
    PACE_CHECK(hosted != nullptr, "a control message for an actor that is not here");
    if (ended_) return;
    guarded([&] { hosted->actor->on_control(from, message); });
}

void ActorHost::queue_control(StageId to, StageId from, control::Message message) {
    Hosted* hosted = find(to);
    PACE_CHECK(hosted != nullptr, "a control message for an actor that is not here");
    hosted->inbox.emplace_back(ColdMail{from, std::move(message)});
}

void ActorHost::room(StageId who, StageId to) {
    if (ended_) return;
    guarded([&] { find(who)->actor->on_room(to); });
}

void ActorHost::peer(StageId peer, PeerChange change) {
    for (const auto& hosted : hosted_) {
        if (!ended_) guarded([&] { hosted->actor->on_peer(peer, change); });
    }
}

void ActorHost::deliver(Hosted& hosted, Mail mail) {
    if (auto* hot = std::get_if<HotMail>(&mail)) {
        --hot->channel->waiting;
        hosted.actor->handle(hot->channel->spec.from, hot->kind, hot->bytes);
    } else if (auto* cold = std::get_if<ColdMail>(&mail)) {
        hosted.actor->on_control(cold->from, cold->message);
    } else {
        auto& completion = std::get<Completion>(mail);
        completion.done(completion.outcome);
        ++jobs_finished_;
    }
}

bool ActorHost::deliver_round() {
    bool any = false;
    for (const auto& hosted : hosted_) {
        if (ended_ || hosted->inbox.empty()) continue;
        Mail mail = std::move(hosted->inbox.front());
        hosted->inbox.pop_front();
        guarded([&] { deliver(*hosted, std::move(mail)); });
        any = true;
    }
    return any;
}

bool ActorHost::call_rooms() {
    bool any = false;
    // By index: a handler may open a channel on demand.
    for (std::size_t i = 0; i < channels_.size() && !ended_; ++i) {
        Channel& edge = *channels_[i];
        if (edge.producer && edge.producer->take_starved()) edge.wants_slot = true;
        const bool room = edge.wants_room && edge.has_room(Urgency::Normal);
        const bool slot = edge.wants_slot && edge.producer->has_room();
        if (!room && !slot) continue;
        if (room) edge.wants_room = false;
        if (slot) edge.wants_slot = false;
        this->room(edge.spec.from, edge.spec.to);
        any = true;
    }
    return any;
}

bool ActorHost::run_timers() {
    const Micros now = outside_.now();
    bool any = false;
    while (!ended_ && !timers_.empty() && timers_.top().due <= now) {
        const std::function<void()> wake = timers_.top().wake;
        timers_.pop();
        guarded(wake);
        any = true;
    }
    return any;
}

bool ActorHost::run_job() {
    if (ended_ || jobs_.empty()) return false;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    fault_point(FaultPoint::JobStarted);
    last_outcome_ = JobOutcome::Cancelled;
    guarded([&] { last_outcome_ = job.work(); });
    fault_point(FaultPoint::JobDone);
    find(job.owner)->inbox.emplace_back(Completion{last_outcome_, std::move(job.done)});
    return true;
}

std::optional<Micros> ActorHost::next_timer() const {
    if (timers_.empty()) return std::nullopt;
    return timers_.top().due;
}

bool ActorHost::has_mail() const {
    for (const auto& hosted : hosted_) {
        if (!hosted->inbox.empty()) return true;
    }
    return false;
}

void ActorHost::fail(Error error) {
    if (ended_) return;  // the first reason is kept
    ended_ = true;
    outcome_ = std::move(error);
}

}  // namespace paceline
