#include "tests/support/pipeline/shuffled_world.hpp"

#include <algorithm>

#include "ipc/base/check.hpp"

namespace paceline::testing {

struct ShuffledWorld::Stage final : StageContext {
    Stage(ShuffledWorld& the_world, StageId the_id, Epoch the_epoch, Actor& the_actor)
        : world{the_world}, id{the_id}, own_epoch{the_epoch}, actor{the_actor} {}
    [[nodiscard]] Micros now() const override { return world.now; }
    [[nodiscard]] Push send(StageId to,
                            std::uint16_t kind,
                            std::span<const std::byte> bytes) override {
        const std::optional<Epoch> peer = wired_to(to);
        if (!peer) return Push::Ok;  // it is lost
        const Edge edge{id, own_epoch, to, *peer};
        if (world.no_room && world.no_room(id, to, kind)) return Push::Full;
        const bool urgent = kind >= static_cast<std::uint16_t>(msg::Kind::Verdict);
        if (!urgent && world.channels_[edge].size() >= world.channel_room) {
            wants_room.insert(to);
            return Push::Full;
        }
        world.push(edge, kind, bytes);
        return Push::Ok;
    }
    void schedule(Micros delay, std::function<void()> wake) override {
        world.timers_.emplace(world.now + delay, Timer{id, own_epoch, std::move(wake)});
    }
    void submit(const JobLabel& label,
                std::function<JobOutcome()> work,
                std::function<void(JobOutcome)> done) override {
        PACE_CHECK(label.request.value != 0 && label.rows > 0, "a job without a label");
        // A job may be through before its stage learns of anything else, or after much else.
        if (std::bernoulli_distribution{0.5}(world.random_)) {
            const JobOutcome outcome = work();
            work = [outcome] { return outcome; };
        }
        jobs.push_back({std::move(work), std::move(done)});
    }
    [[nodiscard]] std::uint64_t random() override { return world.random_(); }
    void trace(TraceEvent event) override { ++world.traces_[{id, event.kind}]; }
    void count(Counter counter, std::uint64_t add) override {
        world.counters_[{id, counter}] += add;
    }
    void set(Gauge gauge, std::uint64_t value) override {
        world.gauges_[id][static_cast<std::size_t>(gauge)] = value;
    }
    [[nodiscard]] StageId self() const override { return id; }
    [[nodiscard]] Epoch epoch() const override { return own_epoch; }
    [[nodiscard]] Epoch epoch_of(StageId peer) const override {
        return wired_to(peer).value_or(Epoch{0});
    }
    void report_fault(StageId peer, Error error) override {
        world.faults.push_back({id, peer, epoch_of(peer), std::move(error)});
    }
    void post(StageId to, const control::Message& message) override {
        // What is meant for one incarnation never reaches the next.
        if (wired_to(to) == world.epoch_of(to)) world.post(to, message, id);
    }
    [[nodiscard]] TensorProducer* tensors_to(StageId to) override {
        const std::optional<Epoch> peer = wired_to(to);
        Pool* pool = peer ? world.pool_of({id, own_epoch, to, *peer}) : nullptr;
        return pool == nullptr ? nullptr : &*pool->producer;
    }
    [[nodiscard]] TensorConsumer* tensors_from(StageId from) override {
        const std::optional<Epoch> peer = wired_to(from);
        Pool* pool = peer ? world.pool_of({from, *peer, id, own_epoch}) : nullptr;
        return pool == nullptr ? nullptr : &*pool->consumer;
    }
    [[nodiscard]] const std::atomic<std::uint64_t>* cancel_word(RequestId request) override {
        return &world.words_[request];
    }
    void cancel_before(RequestId request, Attempt valid) override {
        world.words_[request].store(CancelBoard::mark_of(request, valid));
    }
    [[nodiscard]] const WatermarkCell* watermark_cell(RequestId request) override {
        return &world.watermarks_[request];
    }
    void publish_watermark(RequestId request,
                           Attempt attempt,
                           Position position,
                           TokenId token) override {
        world.watermarks_[request].write(request, attempt, {.position = position, .token = token});
    }
    void fail(Error error) override {
        if (!world.failure) world.failure = std::move(error);
    }
    void stop() override { world.stopped = true; }
    [[nodiscard]] std::optional<Epoch> wired_to(StageId peer) const {
        const auto found = wired.find(peer);
        return found == wired.end() ? std::optional{Epoch{1}} : found->second;
    }

    ShuffledWorld& world;
    StageId id;
    Epoch own_epoch;
    Actor& actor;
    std::map<StageId, std::optional<Epoch>> wired;  // absent: the first; nothing: lost
    std::deque<std::variant<Control, PeerNews>> controls;
    std::deque<Job> jobs;
    std::set<StageId> wants_room;
};

ShuffledWorld::ShuffledWorld(std::uint64_t seed) : random_{seed} {}

ShuffledWorld::~ShuffledWorld() = default;

void ShuffledWorld::add(StageId id, Actor& actor) {
    stages_[id] = std::make_unique<Stage>(*this, id, Epoch{1}, actor);
}

void ShuffledWorld::link(StageId one, StageId other) {
    links_[one].insert(other);
    links_[other].insert(one);
}

void ShuffledWorld::connect_tensors(StageId from,
                                    StageId to,
                                    std::uint32_t slots,
                                    std::size_t slot_bytes) {
    tensor_edges_.push_back({from, to, slots, slot_bytes});
    make_pool(tensor_edges_.back());
}

void ShuffledWorld::post(StageId to, control::Message message, StageId from) {
    const auto at = stages_.find(to);
    if (at != stages_.end()) at->second->controls.emplace_back(Control{from, std::move(message)});
}

void ShuffledWorld::start() {
    for (auto& [id, stage] : stages_) stage->actor.on_start(*stage);
}

void ShuffledWorld::lose(StageId id) {
    PACE_CHECK(stages_.contains(id), "a stage dies twice");
    stages_.erase(id);
    joining_.erase(id);
    for (const StageId peer : links_[id]) tell(peer, id, PeerChange::Lost);
    for (auto& [other, outstanding] : joining_) outstanding.erase(id);
    finish_joins();
}

void ShuffledWorld::join(StageId id, Actor& actor) {
    PACE_CHECK(!stages_.contains(id), "a stage that lives joins");
    Epoch& epoch = epochs_.try_emplace(id, Epoch{1}).first->second;
    ++epoch.value;
    auto fresh = std::make_unique<Stage>(*this, id, epoch, actor);
    Stage& stage = *fresh;
    stages_[id] = std::move(fresh);
    for (const StageId peer : links_[id]) {
        const bool lives = stages_.contains(peer);
        stage.wired[peer] = lives ? std::optional{epoch_of(peer)} : std::nullopt;
        if (lives && peer != kConductor) joining_[id].insert(peer);
    }
    for (const TensorEdge& edge : tensor_edges_) {
        if (edge.from == id || edge.to == id) make_pool(edge);
    }
    actor.on_start(stage);
    for (const StageId peer : links_[id]) {
        if (peer != kConductor) tell(peer, id, PeerChange::Joined);
    }
    joining_.try_emplace(id);
    finish_joins();
}

bool ShuffledWorld::lives(StageId id) const {
    return stages_.contains(id);
}

void ShuffledWorld::run(const std::function<bool()>& done) {
    while (!failure && !done() && step()) {
    }
}

void ShuffledWorld::run_steps(int steps) {
    while (!failure && steps-- > 0 && step()) {
    }
}

bool ShuffledWorld::tensors_all_free() {
    for (auto& [edge, pool] : pools_) {
        if (!is_live(edge)) continue;
        std::vector<PoolRef> taken;
        while (const auto slot = pool->producer->acquire()) taken.push_back(*slot);
        for (const PoolRef slot : taken) pool->producer->abandon(slot);
        // An actor may keep one slot acquired for its next batch.
        if (taken.size() + 1 < pool->slots) return false;
    }
    return true;
}

std::uint64_t ShuffledWorld::counted(StageId id, Counter counter) const {
    const auto found = counters_.find({id, counter});
    return found == counters_.end() ? 0 : found->second;
}

const std::array<std::uint64_t, kGauges>& ShuffledWorld::gauges(StageId id) {
    return gauges_[id];
}

std::uint64_t ShuffledWorld::traced(StageId id, TraceKind kind) const {
    const auto found = traces_.find({id, kind});
    return found == traces_.end() ? 0 : found->second;
}

Epoch ShuffledWorld::epoch_of(StageId id) const {
    const auto found = epochs_.find(id);
    return found == epochs_.end() ? Epoch{1} : found->second;
}

void ShuffledWorld::make_pool(const TensorEdge& edge) {
    if (!stages_.contains(edge.from) || !stages_.contains(edge.to)) return;
    const std::size_t bytes = pool_bytes(edge.slots, edge.slot_bytes).value();
    auto pool = std::make_unique<Pool>();
    pool->memory.resize(bytes / sizeof(Line) + 1);
    const std::span<std::byte> memory{reinterpret_cast<std::byte*>(pool->memory.data()), bytes};
    format_pool(memory, edge.slots, edge.slot_bytes);
    pool->slots = edge.slots;
    pool->producer.emplace(TensorProducer::attach_memory(memory).value());
    pool->consumer.emplace(TensorConsumer::attach_memory(memory).value());
    // Those of the dead stay: a job may still write into one.
    pools_[{edge.from, epoch_of(edge.from), edge.to, epoch_of(edge.to)}] = std::move(pool);
}

ShuffledWorld::Pool* ShuffledWorld::pool_of(const Edge& edge) {
    const auto found = pools_.find(edge);
    return found == pools_.end() ? nullptr : found->second.get();
}

bool ShuffledWorld::is_live(const Edge& edge) const {
    const auto& [from, from_epoch, to, to_epoch] = edge;
    return stages_.contains(from) && stages_.contains(to) && epoch_of(from) == from_epoch &&
           epoch_of(to) == to_epoch;
}

void ShuffledWorld::push(const Edge& edge, std::uint16_t kind, std::span<const std::byte> bytes) {
    channels_[edge].push_back({kind, {bytes.begin(), bytes.end()}});
}

void ShuffledWorld::tell(StageId to, StageId peer, PeerChange change) {
    const auto stage = stages_.find(to);
    if (stage == stages_.end()) return;
    stage->second->controls.emplace_back(PeerNews{peer, epoch_of(peer), change});
}

void ShuffledWorld::finish_joins() {
    for (auto join = joining_.begin(); join != joining_.end();) {
        if (!join->second.empty()) {
            ++join;
            continue;
        }
        tell(kConductor, join->first, PeerChange::Joined);
        join = joining_.erase(join);
    }
}

bool ShuffledWorld::step() {
    now += Micros{std::uniform_int_distribution<int>{0, 20}(random_)};
    std::vector<std::function<void()>> choices;
    for (auto& [edge, messages] : channels_) {
        if (!messages.empty() && can_be_read(edge))
            choices.push_back([this, key = edge] { deliver(key); });
    }
    for (auto& [id, stage] : stages_) {
        Stage* at = stage.get();
        const bool reads = !leaves_control_unread || !leaves_control_unread(id);
        if (!at->controls.empty() && reads) choices.push_back([this, at] { deliver_control(*at); });
        if (!at->jobs.empty()) choices.push_back([at] { end_job(*at); });
        if (!at->wants_room.empty()) choices.push_back([this, at] { tell_room(*at); });
    }
    for (auto& [edge, pool] : pools_) {
        if (!is_live(edge)) continue;
        if (pool->producer->has_room() && pool->producer->take_starved()) {
            stages_.at(std::get<0>(edge))->wants_room.insert(std::get<2>(edge));
        }
    }
    const bool timer_due = !timers_.empty() && timers_.begin()->first <= now;
    const bool may_jump = !timers_.empty() && timers_.begin()->first - now <= jump_max;
    if (timer_due || (choices.empty() && may_jump)) choices.assign(1, [this] { fire(); });
    if (choices.empty()) return std::exchange(idle_rounds_, idle_rounds_ + 1) < 2;
    idle_rounds_ = 0;
    std::size_t before = faults.size();
    choices[std::uniform_int_distribution<std::size_t>{0, choices.size() - 1}(random_)]();
    for (; before < faults.size(); ++before) lose_faulty(faults[before]);
    return true;
}

bool ShuffledWorld::can_be_read(const Edge& edge) const {
    const auto& [from, from_epoch, to, to_epoch] = edge;
    const auto stage = stages_.find(to);
    return stage != stages_.end() && stage->second->own_epoch == to_epoch &&
           stage->second->wired_to(from) == from_epoch;
}

void ShuffledWorld::deliver(const Edge& edge) {
    const QueuedMessage message = std::move(channels_[edge].front());
    channels_[edge].pop_front();
    if (loses && loses(std::get<2>(edge), message.kind)) return;
    if (tap) tap(std::get<2>(edge), message.kind, message.bytes);
    Stage& stage = *stages_.at(std::get<2>(edge));
    stage.actor.handle(std::get<0>(edge), message.kind, message.bytes);
}

void ShuffledWorld::lose_faulty(const Fault& fault) {
    const StageId peer = fault.peer;
    const auto found = stages_.find(fault.by);
    if (found == stages_.end() || !found->second->wired_to(peer)) return;
    Stage& stage = *found->second;
    stage.wired[peer] = std::nullopt;
    stage.wants_room.erase(peer);
    stage.actor.on_peer(peer, PeerChange::Lost);
}

void ShuffledWorld::deliver_control(Stage& stage) {
    const auto news = std::move(stage.controls.front());
    stage.controls.pop_front();
    if (const auto* mail = std::get_if<Control>(&news)) {
        return stage.actor.on_control(mail->from, mail->message);
    }
    const PeerNews& changed = std::get<PeerNews>(news);
    const bool lost = changed.change == PeerChange::Lost;
    if (lost && !stage.wired_to(changed.peer)) return;  // it said so itself
    // News of an incarnation that is gone already: its loss is in the queue as well.
    stage.wired[changed.peer] = lost ? std::nullopt : std::optional{changed.epoch};
    stage.wants_room.erase(changed.peer);
    stage.actor.on_peer(changed.peer, changed.change);
    const auto join = joining_.find(changed.peer);
    if (lost || join == joining_.end() || epoch_of(changed.peer) != changed.epoch) return;
    join->second.erase(stage.id);
    finish_joins();
}

void ShuffledWorld::end_job(Stage& stage) {
    const Job job = std::move(stage.jobs.front());
    stage.jobs.pop_front();
    job.done(job.work());
}

void ShuffledWorld::tell_room(Stage& stage) {
    for (const StageId to : std::exchange(stage.wants_room, {})) {
        const std::optional<Epoch> peer = stage.wired_to(to);
        if (!peer) continue;
        if (channels_[{stage.id, stage.own_epoch, to, *peer}].size() < channel_room) {
            stage.actor.on_room(to);
        } else {
            stage.wants_room.insert(to);
        }
    }
}

void ShuffledWorld::fire() {
    auto timer = timers_.extract(timers_.begin());
    now = std::max(now, timer.key());
    const Timer& due = timer.mapped();
    if (stages_.contains(due.stage) && epoch_of(due.stage) == due.epoch) due.wake();
}

}  // namespace paceline::testing
