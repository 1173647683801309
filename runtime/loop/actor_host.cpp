#include "runtime/loop/actor_host.hpp"

#include <new>
#include <utility>

#include "ipc/base/check.hpp"
#include "ipc/base/faults.hpp"
#include "ipc/wire/data_kinds.hpp"

namespace paceline {

class ActorHost::HostedContext final : public StageContext {
public:
    HostedContext(ActorHost& host, StageId self, Epoch epoch)
        : host_{host}, self_{self}, epoch_{epoch} {}

    [[nodiscard]] StageId self() const override { return self_; }
    [[nodiscard]] Epoch epoch() const override { return epoch_; }
    [[nodiscard]] Epoch epoch_of(StageId peer) const override {
        const Hosted* here = host_.find(peer);
        return here != nullptr ? here->epoch : host_.environment_.epoch_of(self_, peer);
    }
    [[nodiscard]] Micros now() const override { return host_.environment_.now(); }
    [[nodiscard]] Push send(StageId to,
                            std::uint16_t kind,
                            std::span<const std::byte> bytes) override {
        Hosted* here = host_.find(to);
        if (here == nullptr) return host_.environment_.send(self_, to, kind, bytes);
        const KindRule* rule = find_rule(kDataKinds, kind);
        PACE_CHECK(rule != nullptr, "a message of a kind that does not exist");
        PACE_CHECK(bytes.size() >= rule->bytes_min, "a message shorter than its kind");
        PACE_CHECK(bytes.size() <= rule->bytes_max, "a message longer than its kind");
        LocalChannel& edge = host_.channels_.get(self_, to);
        if (!edge.has_room(rule->urgency)) {
            edge.wants_room = true;
            return Push::Full;
        }
        ++edge.waiting;
        here->inbox.emplace_back(DataMessage{&edge, kind, {bytes.begin(), bytes.end()}});
        return Push::Ok;
    }
    void post(StageId to, const control::Message& message) override {
        if (host_.hosts(to)) {
            host_.queue_control(to, self_, message);
        } else {
            host_.environment_.post(self_, to, message);
        }
    }
    void schedule(Micros delay, std::function<void()> wake) override {
        host_.timers_.schedule(now() + delay, std::move(wake));
    }
    void submit(const JobLabel& label,
                std::function<JobOutcome()> work,
                std::function<void(JobOutcome)> done) override {
        host_.jobs_.push({self_, label, std::move(work), std::move(done)});
    }
    [[nodiscard]] std::uint64_t random() override { return host_.environment_.random(); }
    void trace(TraceEvent event) override { host_.environment_.trace(event); }
    void count(Counter counter, std::uint64_t add) override {
        host_.environment_.count(counter, add);
    }
    void set(Gauge gauge, std::uint64_t value) override { host_.environment_.set(gauge, value); }
    [[nodiscard]] const std::atomic<std::uint64_t>* cancel_word(RequestId request) override {
        return host_.environment_.cancel_word(request);
    }
    void cancel_before(RequestId request, Attempt valid) override {
        host_.environment_.cancel_before(request, valid);
    }
    [[nodiscard]] const WatermarkCell* watermark_cell(RequestId request) override {
        return host_.environment_.watermark_cell(request);
    }
    void publish_watermark(RequestId request,
                           Attempt attempt,
                           Position position,
                           TokenId token) override {
        host_.environment_.publish_watermark(request, attempt, position, token);
    }
    [[nodiscard]] TensorProducer* tensors_to(StageId to) override {
        if (!host_.hosts(to)) return host_.environment_.tensors_to(self_, to);
        LocalChannel* channel = host_.channels_.find(self_, to);
        return channel != nullptr && channel->producer ? &*channel->producer : nullptr;
    }
    [[nodiscard]] TensorConsumer* tensors_from(StageId from) override {
        if (!host_.hosts(from)) return host_.environment_.tensors_from(self_, from);
        LocalChannel* channel = host_.channels_.find(from, self_);
        return channel != nullptr && channel->consumer ? &*channel->consumer : nullptr;
    }
    void excuse_loss(StageId stage) override { host_.environment_.excuse_loss(stage); }
    void report_fault(StageId peer, Error error) override {
        if (host_.hosts(peer)) return host_.end_on_error(std::move(error));
        host_.environment_.report_fault(self_, peer, std::move(error));
    }
    void fail(Error error) override { host_.end_on_error(std::move(error)); }
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
        end_on_error(Error{Errc::OutOfMemory, "out of memory"});
    }
}

ActorHost::ActorHost(HostEnvironment& environment, Channels channels)
    : environment_{environment}, channels_{channels} {}
ActorHost::~ActorHost() = default;

void ActorHost::add(StageId id, Epoch epoch, Actor& actor) {
    PACE_CHECK(find(id) == nullptr, "two actors under one address");
    auto context = std::make_unique<HostedContext>(*this, id, epoch);
    hosted_.push_back(std::make_unique<Hosted>(Hosted{id, epoch, &actor, std::move(context), {}}));
}

Status ActorHost::connect(const EdgeSpec& spec, TensorDevice* device) {
    PACE_CHECK(find(spec.from) != nullptr, "a channel from an actor that is not here");
    PACE_CHECK(find(spec.to) != nullptr, "a channel to an actor that is not here");
    return channels_.connect(spec, device);
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
    hosted->inbox.emplace_back(ControlMessage{from, std::move(message)});
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
    if (auto* data = std::get_if<DataMessage>(&mail)) {
        --data->channel->waiting;
        hosted.actor->handle(data->channel->spec.from, data->kind, data->bytes);
    } else if (auto* order = std::get_if<ControlMessage>(&mail)) {
        hosted.actor->on_control(order->from, order->message);
    } else {
        auto& completion = std::get<Completion>(mail);
        completion.done(completion.outcome);
        jobs_.completed();
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
        LocalChannel& edge = channels_[i];
        if (!edge.take_room()) continue;
        room(edge.spec.from, edge.spec.to);
        any = true;
    }
    return any;
}

bool ActorHost::run_timers() {
    const Micros now = environment_.now();
    bool any = false;
    while (!ended_) {
        const std::function<void()> wake = timers_.take_due(now);
        if (!wake) break;
        guarded(wake);
        any = true;
    }
    return any;
}

bool ActorHost::run_job() {
    if (ended_ || jobs_.empty()) return false;
    JobQueue::Job job = jobs_.take();
    fault_point(FaultPoint::JobStarted);
    JobOutcome outcome = JobOutcome::Cancelled;
    guarded([&] { outcome = job.work(); });
    jobs_.end(outcome);
    fault_point(FaultPoint::JobDone);
    find(job.owner)->inbox.emplace_back(Completion{outcome, std::move(job.done)});
    return true;
}

bool ActorHost::has_mail() const {
    for (const auto& hosted : hosted_) {
        if (!hosted->inbox.empty()) return true;
    }
    return false;
}

void ActorHost::end_on_error(const Status& status) {
    if (status.ok() || ended_) return;  // the first reason is kept
    ended_ = true;
    outcome_ = status;
}

}  // namespace paceline
