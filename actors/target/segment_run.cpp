// The second part of SegmentActor: from the queue into the layers. The first (segment_actor.cpp)
// is its inbox, the third (segment_finish.cpp) what follows from a run.
#include "actors/target/segment_run.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "actors/protocol/counters.hpp"
#include "ipc/base/check.hpp"
#include "ipc/base/faults.hpp"
#include "ipc/wire/cancel_board.hpp"

namespace paceline {

// ---- The queue

bool SegmentActor::alive(const RequestState& state, std::span<const msg::WaveRow> rows) const {
    return !state.over() && std::any_of(rows.begin(), rows.end(), [&](const msg::WaveRow& row) {
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

SegmentQueue::Rules SegmentActor::queue_rules() {
    return {.look = [this](WaitingPart& part) { return turn_of(part); },
            .drop = [this](WaitingPart& part) { drop(part); }};
}

Result<SegmentQueue::Turn> SegmentActor::turn_of(WaitingPart& part) {
    using Turn = SegmentQueue::Turn;
    const std::shared_ptr<RequestState> state = find(part.part.request, part.part.attempt);
    if (!state) {
        const Age age = gate_.age(part.part.request, part.part.attempt);
        return age == Age::Early ? Turn::Waits : Turn::Moot;
    }
    if (state->over()) return Turn::Moot;
    if (part.part.kind == msg::WaveKind::Prefill) return Turn::Ready;
    // A part that builds on a verdict waits for it: both are on their way to here.
    if (part.part.base > static_cast<Position>(state->slots().size())) return Turn::Waits;
    if (!part.adopted) {
        if (Status taken = state->take_rows(part.rows); !taken) return taken.error();
        part.adopted = true;
    }
    return alive(*state, part.rows) ? Turn::Ready : Turn::Moot;
}

void SegmentActor::drop(WaitingPart& part) {
    ++figures_.dropped_parts;
    if (part.tensor && planted(PlantedBug::TensorLeakOnStale)) part.tensor->forget();
}

void SegmentActor::show_gauges() {
    const auto open = std::count_if(requests_.begin(), requests_.end(),
                                    [](const auto& entry) { return !entry.second->over(); });
    context_->set(gauges::kRequests, static_cast<std::uint64_t>(open));
    context_->set(gauges::kQueueDepth, queue_.size());
}

Status SegmentActor::advance() {
    unpark();
    while (!busy() && channels_free()) {
        Result<std::vector<WaitingPart>> parts = next_parts();
        if (!parts) return parts.error();
        if (parts.value().empty()) break;
        if (Status started = start(std::move(parts).value()); !started) return started;
    }
    wake_when_due();
    return {};
}

/// What goes into the next run. The first segment's waves come from its dispatcher.
Result<std::vector<WaitingPart>> SegmentActor::next_parts() {
    if (!first()) return queue_.take(queue_rules(), context_->now());
    std::vector<WaitingPart> parts;
    while (parts.empty()) {
        std::optional<msg::Wave> wave = std::exchange(formed_, std::nullopt);
        if (!wave) wave = form_wave();
        if (!wave) break;
        std::uint32_t at = 0;
        for (const msg::WavePart& part : std::span{wave->parts}.first(wave->part_count)) {
            const auto rows = std::span{wave->rows}.subspan(at, part.rows);
            at += part.rows;
            const std::shared_ptr<RequestState> state = find(part.request, part.attempt);
            if (!state || state->over()) continue;  // it has ended since the wave was formed
            parts.push_back({.part = part, .rows = {rows.begin(), rows.end()}, .adopted = true});
        }
    }
    return parts;
}

/// Sets a timer for what is due even if nothing else happens.
void SegmentActor::wake_when_due() {
    const Micros now = context_->now();
    std::optional<Micros> due = queue_.due(now);
    // While a run is in the way the end of it comes first; a wave that is due already waits for
    // a channel.
    const bool waits = parked_ || (!busy() && outbox_->empty() && (last() || out_slot_));
    if (first() && waits) {
        const std::optional<Micros> wave = dispatcher_->due();
        if (wave && (!due || *wave < *due)) due = wave;
    }
    if (!due || (wake_at_ && *wake_at_ <= *due && *wake_at_ > now)) return;
    // A parked run asks again a little later: what is due may be another request's wave.
    const Micros delay = std::max(parked_ ? Micros{500} : Micros{0}, *due - now);
    wake_at_ = now + delay;
    context_->schedule(delay, [this, at = *wake_at_] {
        if (wake_at_ == at) wake_at_.reset();
        report(advance());
    });
}

// ---- One run

Status SegmentActor::start(std::vector<WaitingPart> parts) {
    auto run = std::make_shared<Run>();
    if (Status collected = collect(*run, parts); !collected) return collected;
    if (run->named.empty()) return {};
    if (Status complete = check_roots(*run); !complete) return complete;
    build_rows(*run, run->rows, run->path_slots);
    record(*run);
    prepare(*run);
    submit(run);
    return {};
}

/// Brings the parts into the run: rows that live, those of one request together.
Status SegmentActor::collect(Run& run, const std::vector<WaitingPart>& parts) {
    if (last()) {
        run.hidden = hidden_;
    } else {
        PACE_CHECK(out_slot_.has_value(), "a run starts without a slot to write to");
        const std::span<std::byte> slot = out_->bytes(*out_slot_);
        run.hidden = {reinterpret_cast<float*>(slot.data()), slot.size() / sizeof(float)};
    }
    for (auto part = parts.begin(); part != parts.end(); ++part) {
        const auto same = [&](const WaitingPart& other) {
            return other.part.request == part->part.request;
        };
        if (std::any_of(parts.begin(), part, same)) continue;  // it went with an earlier one
        Part one{.state = find(part->part.request, part->part.attempt),
                 .part = part->part,
                 .first = run.named.size(),
                 .committed = {}};
        PACE_CHECK(one.state != nullptr, "a part of a request that is not here is run");
        one.part.rows = 0;
        one.part.hold = 0;
        for (auto merged = part; merged != parts.end(); ++merged) {
            if (!same(*merged)) continue;
            one.part.wave = merged->part.wave;  // a verdict answers the newest of them
            if (Status placed = place_rows(run, one, *merged); !placed) return placed;
        }
        one.committed = one.state->text();
        if (one.part.rows > 0) run.parts.push_back(one);
    }
    const auto dim = static_cast<std::size_t>(backend_.config().dim);
    run.hidden = run.hidden.first(run.named.size() * dim);
    return {};
}

/// Copies what the segment before computed for the rows that live.
Status SegmentActor::place_rows(Run& run, Part& part, const WaitingPart& waiting) {
    const auto dim = static_cast<std::size_t>(backend_.config().dim);
    const std::size_t row_bytes = dim * sizeof(float);
    if (part.prefill()) {
        Status taken = part.state->take_prefill(waiting.part.base, waiting.rows);
        if (!taken) return taken;
    }
    std::span<const std::byte> source = std::as_bytes(std::span{waiting.hidden});
    if (waiting.tensor) {
        const auto viewed = waiting.tensor->view(waiting.tensor_rows * row_bytes);
        if (!viewed) return viewed.error();
        source = viewed.value().subspan(waiting.first_row * row_bytes);
    }
    for (std::size_t i = 0; i < waiting.rows.size(); ++i) {
        const bool lives =
            part.prefill() || part.state->tree().find(waiting.rows[i].node) != nullptr;
        if (!lives) continue;
        if (!first()) {
            std::memcpy(run.hidden.subspan(run.named.size() * dim).data(),
                        source.subspan(i * row_bytes).data(), row_bytes);
        }
        run.named.push_back(waiting.rows[i]);
        ++part.part.rows;
    }
    return {};
}

/// What the judge gets of a request must begin with its root, or nothing could be said of it.
Status SegmentActor::check_roots(const Run& run) const {
    if (!last()) return {};
    for (const Part& part : run.parts) {
        if (part.prefill() || run.named[part.first].node == part.state->tree().root().id) continue;
        return Error{Errc::Protocol, "a wave of request " +
                                         std::to_string(part.state->request().value) +
                                         " reaches the judge without its root"};
    }
    return {};
}

/// Rows with what they see: a prefill row sees the table up to itself, a node sees the committed
/// prefix and its path.
void SegmentActor::build_rows(const Run& run,
                              std::vector<Row>& rows,
                              std::vector<KvSlot>& path_slots) const {
    std::vector<std::size_t> path_begin;
    for (const Part& part : run.parts) {
        const RequestState& state = *part.state;
        for (const msg::WaveRow& named : run.rows_of(part)) {
            Row row;
            row.token = named.token;
            row.position = named.position;
            row.slot = named.slot;
            row.first = 2 * backend_.first_layer();
            row.last = 2 * backend_.last_layer();
            row.prefix_slots = state.slots().data();
            row.prefix_count = named.position + 1;
            path_begin.push_back(path_slots.size());
            if (!part.prefill()) {
                const std::vector<const TreeNode*> path = state.tree().path(named.node);
                row.path_count = static_cast<std::int32_t>(path.size());
                row.prefix_count = named.position + 1 - row.path_count;
                for (const TreeNode* node : path) path_slots.push_back(node->slot);
            }
            rows.push_back(row);
        }
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
        if (rows[i].path_count > 0) rows[i].path_slots = path_slots.data() + path_begin[i];
    }
}

/// What the job can hear of while it runs. The judge itself is who says it.
void SegmentActor::watch(Run& run) {
    if (run.parts.size() == 1) {
        const RequestState& state = *run.parts.front().state;
        run.cancel.watch(context_->void_word(state.request()),
                         CancelBoard::mark_of(state.request(), state.attempt()));
    }
    for (const Part& part : run.parts) {
        const RequestState& state = *part.state;
        const std::size_t place =
            run.watch.add({.request = state.request(),
                           .attempt = state.attempt(),
                           .fate = last() ? nullptr : context_->fate_cell(state.request()),
                           .word = context_->void_word(state.request())});
        const auto rows = run.rows_of(part);
        for (std::size_t i = 0; i < rows.size(); ++i) {
            FateWatch::WatchedRow watched{.part = place};
            if (!part.prefill()) {
                const std::vector<const TreeNode*> path = state.tree().path(rows[i].node);
                watched.first = path.front()->position;
                for (const TreeNode* node : path) watched.tokens.push_back(node->token);
                const auto parent = std::find_if(
                    rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(i),
                    [&](const msg::WaveRow& row) { return row.node.value == rows[i].parent; });
                if (parent != rows.begin() + static_cast<std::ptrdiff_t>(i)) {
                    watched.parent = part.first + static_cast<std::size_t>(parent - rows.begin());
                }
            }
            run.watch.add(std::move(watched));
        }
    }
    run.cancel.watch_rows(&run.watch);
}

/// What the job needs beside the rows.
void SegmentActor::prepare(Run& run) {
    watch(run);
    const auto dim = static_cast<std::size_t>(backend_.config().dim);
    const bool verifies = std::any_of(run.parts.begin(), run.parts.end(),
                                      [](const Part& part) { return !part.prefill(); });
    run.looked_at = early_ && verifies && early_->wanted();
    if (last()) ask_for_tokens(run);
    for (const Part& part : run.parts) {
        if (part.prefill()) continue;
        const auto rows = run.rows_of(part);
        if (last()) {
            run.judged.push_back(
                {.state = *part.state,
                 .committed = part.committed,
                 .rows = rows,
                 .hidden = run.hidden.subspan(part.first * dim, rows.size() * dim),
                 .drawn = std::span{run.drawn}.subspan(run.drawn.empty() ? 0 : part.first,
                                                       run.drawn.empty() ? 0 : rows.size())});
        } else if (run.looked_at && early_->options().defers) {
            run.exits.push_back(ask_exit(part, rows));
        }
    }
}

/// The judge's tokens come with the layers if the device can draw all of them: one wait for the run.
/// A token behind a row of prefill is drawn for nobody.
void SegmentActor::ask_for_tokens(Run& run) const {
    if (!backend_.draws_behind_rows()) return;
    const bool all = std::all_of(run.parts.begin(), run.parts.end(), [&](const Part& part) {
        return part.prefill() || verify_->draws_behind_rows(*part.state);
    });
    if (!all) return;
    run.jobs.resize(run.named.size());
    run.drawn.resize(run.named.size());
    for (const Part& part : run.parts) {
        if (part.prefill()) continue;
        const auto rows = run.rows_of(part);
        for (std::size_t i = 0; i < rows.size(); ++i)
            run.jobs[part.first + i] = FinalVerify::job_behind(*part.state, rows[i]);
    }
}

/// The layers, and with them what the judge wants to know, if the device can draw it.
RunOutcome SegmentActor::run_rows(Run& run) {
    if (run.jobs.empty()) return backend_.run_layers(run.rows, run.hidden, &run.cancel);
    // Of a judged run only an exit looks at hidden states.
    return backend_.run_and_draw(run.rows, run.hidden, {.jobs = run.jobs, .hidden = run.looked_at},
                                 run.drawn, &run.cancel);
}

/// What the exit looks at of a part, and where it hears that it need not.
ExitPart SegmentActor::ask_exit(const Part& part, std::span<const msg::WaveRow> rows) const {
    ExitPart asked = early_->ask(part.state, rows, part.first);
    const RequestState& state = *part.state;
    asked.fate = {.request = state.request(),
                  .attempt = state.attempt(),
                  .fate = context_->fate_cell(state.request()),
                  .word = context_->void_word(state.request())};
    return asked;
}

void SegmentActor::submit(const std::shared_ptr<Run>& run) {
    running_ = run;
    run->started = context_->now();
    price_look(run->started);
    JobLabel label{
        .name = "prefill",
        .request = run->parts.front().state->request(),
        .id = run->parts.front().part.wave.value,
        .rows = static_cast<std::uint32_t>(run->named.size()),
        .layers = static_cast<std::uint32_t>(backend_.last_layer() - backend_.first_layer())};
    for (const Part& part : run->parts) {
        if (!part.prefill()) label.name = "verify";
        if (part.prefill() || !last()) continue;
        label.heads += run->jobs.empty() ? depth_of(run->rows_of(part)) + 1 : part.part.rows;
    }
    if (run->jobs.empty()) {
        const auto judged = static_cast<std::uint32_t>(run->judged.size());
        label.heads = std::min(label.heads, std::max(plan_.verify.head_rows, judged));
    }
    for (const ExitPart& part : run->exits) {
        label.heads += static_cast<std::uint32_t>(part.rows.size());
    }
    for (const msg::WaveRow& row : run->named) {
        label.context = std::max(label.context, row.position + 1);
    }
    const bool looks_inside = early_ && !last() && early_->options().defers;
    context_->submit(
        label,
        [this, run, looks_inside] {
            if (run_rows(*run) == RunOutcome::Cancelled) return JobOutcome::Cancelled;
            if (!run->judged.empty()) verify_->judge(run->judged);
            if (looks_inside) early_->look(run->exits, run->hidden, run->rows);
            return JobOutcome::Done;
        },
        [this, run](JobOutcome outcome) { finish(run, outcome); });
}

void SegmentActor::record(const Run& run) {
    context_->count(counters::kWaves);
    context_->count(counters::kWaveRows, run.named.size());
    bool verifies = false;
    for (const Part& part : run.parts) {
        verifies = verifies || !part.prefill();
        (part.prefill() ? figures_.prefill_rows : figures_.rows) += part.part.rows;
        if (part.prefill()) context_->count(counters::kPrefillRows, part.part.rows);
        if (!first()) continue;
        if (!part.prefill() && part.part.rows == 1) context_->count(counters::kRootAlone);
        context_->trace({.kind = TraceKind::Wave,
                         .request = part.part.request,
                         .attempt = part.part.attempt,
                         .id = part.part.wave.value,
                         .position = part.part.base,
                         .count = part.part.rows});
    }
    if (verifies) ++figures_.waves;
}

}  // namespace paceline
