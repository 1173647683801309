// The second half of SegmentActor: its queue, and the way of one wave through the layers. The
// first half (segment_actor.cpp) is its inbox.
#include "actors/segment_run.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ipc/base/check.hpp"
#include "ipc/base/faults.hpp"
#include "ipc/cancel_board.hpp"

namespace paceline {

// ---- The queue

bool SegmentActor::alive(const RequestState& state, const msg::Wave& wave) const {
    if (state.over()) return false;
    if (wave.kind == msg::WaveKind::Prefill) return true;
    const auto rows = std::span{wave.rows}.first(wave.row_count);
    return std::any_of(rows.begin(), rows.end(), [&](const msg::WaveRow& row) {
        return state.tree().find(row.node) != nullptr;
    });
}

bool SegmentActor::channels_free() {
    outbox_->flush();
    if (!outbox_->empty()) return false;
    if (!last() && out_ == nullptr) return false;  // the next segment is lost
    if (!last() && !out_slot_) out_slot_ = out_->acquire();
    return last() || out_slot_.has_value();
}

bool SegmentActor::queue_head_ready() {
    while (!queue_.empty()) {
        const msg::Wave& wave = queue_.front();
        const std::shared_ptr<RequestState> state = find(wave.route);
        if (state && !state->over()) {
            // A wave that builds on a verdict waits for it: both are on their way to here.
            const auto known = static_cast<Position>(state->slots().size());
            return wave.kind == msg::WaveKind::Prefill || wave.base <= known;
        }
        drop(wave);
        queue_.pop_front();
    }
    return false;
}

void SegmentActor::show_gauges() {
    const auto open = std::count_if(requests_.begin(), requests_.end(),
                                    [](const auto& entry) { return !entry.second->over(); });
    context_->set(Gauge::Requests, static_cast<std::uint64_t>(open));
    context_->set(Gauge::QueueDepth, queue_.size());
}

Status SegmentActor::advance() {
    while (!running_ && channels_free()) {
        if (first()) {
            const std::optional<msg::Wave> wave = dispatcher_->next_wave(context_->now());
            if (!wave) {
                wake_when_due();
                return {};
            }
            if (Status started = start(find(wave->route), *wave); !started) return started;
        } else {
            if (!queue_head_ready()) return {};
            const msg::Wave wave = queue_.front();
            queue_.pop_front();
            if (Status started = start(find(wave.route), wave); !started) return started;
        }
    }
    return {};
}

void SegmentActor::wake_when_due() {
    const std::optional<Micros> due = dispatcher_->due();
    if (!due || (wake_at_ && *wake_at_ <= *due)) return;
    wake_at_ = due;
    const Micros delay = std::max(Micros{0}, *due - context_->now());
    context_->schedule(delay, [this] {
        wake_at_.reset();
        report(advance());
    });
}

// ---- One wave

Status SegmentActor::start(const std::shared_ptr<RequestState>& state, const msg::Wave& wave) {
    PACE_CHECK(state != nullptr, "a wave of a request that is not here is started");
    const bool prefill = wave.kind == msg::WaveKind::Prefill;
    if (prefill || !first()) {
        const Status taken = prefill ? state->take_prefill(wave) : state->take_rows(wave);
        if (!taken) return taken;
    }
    if (!alive(*state, wave)) {
        drop(wave);
        return {};
    }
    auto run = std::make_shared<Run>();
    run->state = state;
    run->wave = wave;
    run->committed = state->text();
    if (Status placed = place_hidden(*run, wave); !placed) return placed;
    build_rows(*run);
    record(*run);
    if (last() && !prefill) {
        PACE_CHECK(run->wave.rows[0].node == state->tree().root().id,
                   "a wave without the root reaches the judge");
    }
    run->cancel.watch(context_->void_word(state->request()),
                      CancelBoard::mark_of(state->request(), state->attempt()));
    running_ = run;
    context_->submit(
        {.name = prefill ? "prefill" : "verify",
         .request = state->request(),
         .id = wave.wave.value,
         .rows = run->wave.row_count,
         .layers = static_cast<std::uint32_t>(backend_.last_layer() - backend_.first_layer()),
         .context = run->wave.rows[run->wave.row_count - 1].position + 1},
        [this, run] {
            if (backend_.run_layers(run->rows, run->hidden, &run->cancel) ==
                RunOutcome::Cancelled) {
                return JobOutcome::Cancelled;
            }
            if (last() && run->wave.kind == msg::WaveKind::Verify) {
                const auto rows = std::span<const msg::WaveRow>{run->wave.rows};
                run->judged = verify_->judge(*run->state, run->committed,
                                             rows.first(run->wave.row_count), run->hidden);
            }
            return JobOutcome::Done;
        },
        [this, run](JobOutcome outcome) { finish(run, outcome); });
    return {};
}

void SegmentActor::record(const Run& run) {
    const msg::Wave& wave = run.wave;
    const bool prefill = wave.kind == msg::WaveKind::Prefill;
    (prefill ? figures_.prefill_rows : figures_.rows) += wave.row_count;
    if (!prefill) ++figures_.waves;
    context_->count(Counter::Waves);
    context_->count(Counter::WaveRows, wave.row_count);
    if (prefill) context_->count(Counter::PrefillRows, wave.row_count);
    if (!first()) return;
    context_->trace({.kind = TraceKind::Wave,
                     .request = wave.route.request,
                     .attempt = wave.route.attempt,
                     .id = wave.wave.value,
                     .position = wave.base,
                     .count = wave.row_count});
}

/// Finds the memory for the hidden states of the rows that live, and brings in what the segment
/// before computed. Leaves only those rows in the run's wave.
Status SegmentActor::place_hidden(Run& run, const msg::Wave& arrived) {
    const auto dim = static_cast<std::size_t>(backend_.config().dim);
    if (last()) {
        run.hidden = hidden_;
    } else {
        PACE_CHECK(out_slot_.has_value(), "a wave starts without a slot to write to");
        const std::span<std::byte> slot = out_->bytes(*out_slot_);
        run.hidden = {reinterpret_cast<float*>(slot.data()), slot.size() / sizeof(float)};
    }
    std::span<const std::byte> source;
    const PoolRef ref{.index = arrived.tensor, .generation = arrived.tensor_generation};
    if (!first()) {
        PACE_CHECK(in_ != nullptr, "a wave of a lost segment is run");
        const std::size_t bytes = arrived.row_count * dim * sizeof(float);
        const auto viewed = in_->view(ref, bytes);
        if (!viewed) return viewed.error();
        source = viewed.value();
    }
    std::uint32_t kept = 0;
    for (std::uint32_t i = 0; i < arrived.row_count; ++i) {
        const bool lives = arrived.kind == msg::WaveKind::Prefill ||
                           run.state->tree().find(arrived.rows[i].node) != nullptr;
        if (!lives) continue;
        run.wave.rows[kept] = arrived.rows[i];
        if (!first()) {
            std::memcpy(run.hidden.subspan(kept * dim).data(),
                        source.subspan(i * dim * sizeof(float)).data(), dim * sizeof(float));
        }
        ++kept;
    }
    run.wave.row_count = kept;
    run.hidden = run.hidden.first(kept * dim);
    if (!first()) in_->release(ref);
    return {};
}

/// Rows with what they see: a prefill row sees the table up to itself, a node sees the committed
/// prefix and its path.
void SegmentActor::build_rows(Run& run) const {
    const RequestState& state = *run.state;
    const KvSlot* table = state.slots().data();
    std::vector<std::size_t> path_begin;
    for (std::uint32_t i = 0; i < run.wave.row_count; ++i) {
        const msg::WaveRow& named = run.wave.rows[i];
        Row row;
        row.token = named.token;
        row.position = named.position;
        row.slot = named.slot;
        row.first = 2 * backend_.first_layer();
        row.last = 2 * backend_.last_layer();
        row.prefix_slots = table;
        row.prefix_count = named.position + 1;
        path_begin.push_back(run.path_slots.size());
        if (run.wave.kind == msg::WaveKind::Verify) {
            const std::vector<const TreeNode*> path = state.tree().path(named.node);
            row.path_count = static_cast<std::int32_t>(path.size());
            row.prefix_count = named.position + 1 - row.path_count;
            for (const TreeNode* node : path) run.path_slots.push_back(node->slot);
        }
        run.rows.push_back(row);
    }
    for (std::size_t i = 0; i < run.rows.size(); ++i) {
        if (run.rows[i].path_count > 0)
            run.rows[i].path_slots = run.path_slots.data() + path_begin[i];
    }
}

void SegmentActor::finish(const std::shared_ptr<Run>& run, JobOutcome outcome) {
    PACE_CHECK(running_ == run, "a job ends that is not running");
    running_.reset();
    const bool current = find(run->wave.route) == run->state;
    Status status;
    if (outcome == JobOutcome::Cancelled || !current || run->state->over()) {
        // The slot towards the next segment, if there is one, serves another wave.
        ++figures_.dropped_waves;
        // Cancelled though it lives: the conductor has declared the attempt void, its word on
        // that is on its way. Nothing may be computed behind this gap.
        if (current && alive(*run->state, run->wave)) run->state->stop();
    } else if (!last()) {
        pass_on(*run);
    } else if (run->wave.kind == msg::WaveKind::Verify) {
        status = announce(*run);
    }
    if (status.ok()) status = advance();
    report(status);
}

void SegmentActor::pass_on(const Run& run) {
    const PoolRef ref = *std::exchange(out_slot_, std::nullopt);
    out_->publish(ref, run.hidden.size_bytes());
    msg::Wave wave = run.wave;
    wave.route.epoch = context_->epoch();
    wave.tensor = ref.index;
    wave.tensor_generation = ref.generation;
    outbox_->send(*plan_.next, wave);
}

Status SegmentActor::announce(const Run& run) {
    msg::Route route = run.wave.route;
    route.epoch = context_->epoch();
    const msg::Verdict verdict =
        make_verdict(route, run.wave.wave, static_cast<Position>(run.committed.size()),
                     run.wave.row_count, run.judged);
    fault_point(FaultPoint::VerdictMade);
    context_->count(Counter::Verdicts);
    context_->count(Counter::TokensProposed, verdict.wave_rows - 1);
    context_->count(Counter::TokensAccepted, verdict.count > 0 ? verdict.count - 1 : 0);
    context_->trace({.kind = TraceKind::Verdict,
                     .request = route.request,
                     .attempt = route.attempt,
                     .id = verdict.wave.value,
                     .position = verdict.base,
                     .count = verdict.count});
    for (const StageId to : plan_.verdict_to) {
        // A draft that hangs, or is slower than the target, must not hold it back: it notices what
        // it missed and rests until it is told anew.
        if (to == plan_.draft) {
            outbox_->offer(to, verdict);
        } else {
            outbox_->send(to, verdict);
        }
    }
    if (Status applied = apply(*run.state, verdict); !applied) return applied;
    return begin_waiting();  // the only segment hears of an end from itself
}

void SegmentActor::drop(const msg::Wave& wave) {
    ++figures_.dropped_waves;
    if (first() || in_ == nullptr || wave.tensor == msg::kNoTensor) return;
    if (planted(PlantedBug::TensorLeakOnStale)) return;
    in_->release({.index = wave.tensor, .generation = wave.tensor_generation});
}

}  // namespace paceline
