// The third part of SegmentActor: what follows from a run: rows that died are left out, the rest
// is passed on or judged, and the exit looks at it.
#include <algorithm>
#include <cstring>
#include <utility>

#include "actors/protocol/counters.hpp"
#include "actors/target/segment_run.hpp"
#include "ipc/base/check.hpp"
#include "ipc/base/faults.hpp"

namespace paceline {
namespace {

constexpr double kInsideShare = 0.1;  // of a wave: a look inside a run is not measured by itself
constexpr double kWaveMemory = 16.0;  // waves
constexpr Micros kAtOnce{50};

}  // namespace

bool SegmentActor::moot(const Part& part) const {
    return find(part.part.request, part.part.attempt) != part.state || part.state->over();
}

/// The job is of no use to anybody any more.
void SegmentActor::cancel_if_moot() {
    if (!running_) return;
    const bool useless =
        std::all_of(running_->parts.begin(), running_->parts.end(), [&](const Part& part) {
            if (moot(part)) return true;
            return !part.prefill() && !alive(*part.state, running_->rows_of(part));
        });
    if (useless) running_->cancel.cancel();
}

void SegmentActor::finish(const std::shared_ptr<Run>& run, JobOutcome outcome) {
    PACE_CHECK(running_ == run, "a job ends that is not running");
    running_.reset();
    leave_out_dead(*run, outcome);
    Status status;
    if (!run->parts.empty()) status = go_on(run);
    if (status.ok() && last()) status = begin_waiting();  // it hears of an end from itself
    if (status.ok()) status = advance();
    report(status);
}

void SegmentActor::leave_out_dead(Run& run, JobOutcome outcome) {
    std::vector<bool> kept(run.named.size(), false);
    for (std::size_t p = 0; p < run.parts.size(); ++p) {
        const Part& part = run.parts[p];
        if (moot(part)) continue;
        bool lives = false;
        for (std::size_t row = part.first; row < part.first + part.part.rows; ++row) {
            const bool dead = run.watch.dead(row);
            const bool there =
                part.prefill() || part.state->tree().find(run.named[row].node) != nullptr;
            kept[row] = outcome == JobOutcome::Done && there && !dead;
            lives = lives || !dead;
        }
        const bool wanted = part.prefill() || alive(*part.state, run.rows_of(part));
        const bool cut_short = outcome == JobOutcome::Cancelled && lives;
        // The conductor has declared the attempt void, its word on that is on its way. Nothing may
        // be computed behind this gap.
        if (wanted && (cut_short || run.watch.is_void(p))) part.state->stop();
    }
    keep(run, kept);
}

/// Leaves only the rows that are to be kept, and the parts that have any. The slot towards the
/// next segment, if nothing is left for it, serves another run.
void SegmentActor::keep(Run& run, const std::vector<bool>& kept) {
    const auto dim = static_cast<std::size_t>(backend_.config().dim);
    std::vector<Part> parts;
    std::size_t count = 0;
    for (Part& part : run.parts) {
        const std::size_t begin = part.first;
        const std::size_t end = begin + part.part.rows;
        if (std::none_of(kept.begin() + static_cast<std::ptrdiff_t>(begin),
                         kept.begin() + static_cast<std::ptrdiff_t>(end),
                         [](bool k) { return k; })) {
            ++figures_.dropped_parts;
            continue;
        }
        parts.push_back(part);
        if (last()) continue;  // the verdict is about all its rows
        parts.back().first = count;
        for (std::size_t row = begin; row < end; ++row) {
            if (!kept[row]) continue;
            if (row != count) {
                run.named[count] = run.named[row];
                std::memmove(run.hidden.subspan(count * dim).data(),
                             run.hidden.subspan(row * dim).data(), dim * sizeof(float));
            }
            ++count;
        }
        parts.back().part.rows = static_cast<std::uint32_t>(count - parts.back().first);
    }
    run.parts = std::move(parts);
    if (last()) return;
    run.named.resize(count);
    run.hidden = run.hidden.first(count * dim);
}

/// The run is through its layers, and some of it is still wanted.
Status SegmentActor::go_on(const std::shared_ptr<Run>& run) {
    note_wave(*run);
    if (last()) return announce(*run);
    auto look = std::make_shared<Look>();
    for (Part& part : run->parts) {
        const auto looked = std::find_if(run->exits.begin(), run->exits.end(),
                                         [&](const auto& at) { return at.state == part.state; });
        if (part.prefill() || looked == run->exits.end()) continue;
        context_->count(counters::kExitRows, looked->rows.size());
        part.part.hold = tell(*looked) ? 1 : 0;
    }
    if (!run->exits.empty()) early_->spent(kInsideShare, true);
    if (early_ && !early_->options().defers) look_at(*run, *look);
    if (first()) hold_if_followed(*run);
    if (early_ && early_->options().lockstep && first()) {
        parked_ = run;
    } else {
        pass_on(*run);
    }
    start_look(look);
    return {};
}

/// Copies what the exit is to look at: the slot is the next segment's from now on. An adapter gets
/// every row, or it would miss keys of the text.
void SegmentActor::look_at(const Run& run, Look& look) const {
    const auto dim = static_cast<std::size_t>(backend_.config().dim);
    look.request = run.parts.front().part.request;
    look.wave = run.parts.front().part.wave.value;
    for (const msg::WaveRow& row : run.named)
        look.context = std::max(look.context, static_cast<std::uint32_t>(row.position) + 1);
    if (early_->has_adapter()) {
        look.hidden.assign(run.hidden.begin(), run.hidden.end());
        build_rows(run, look.rows, look.path_slots);
        for (const Part& part : run.parts) look.states.push_back(part.state);
    }
    for (const Part& part : run.parts) {
        if (part.prefill() || !run.looked_at) continue;
        ExitPart asked = ask_exit(part, run.rows_of(part));
        for (ExitRow& row : asked.rows) {
            if (early_->has_adapter()) break;
            const auto state = run.hidden.subspan(row.row * dim, dim);
            row.row = look.hidden.size() / dim;
            look.hidden.insert(look.hidden.end(), state.begin(), state.end());
        }
        if (!asked.rows.empty()) look.exits.push_back(std::move(asked));
    }
}

/// A deferred row that nothing follows would wait for its limit in vain: the wave behind it is
/// formed before it is passed on, and it is held only if a row of that wave builds on it.
void SegmentActor::hold_if_followed(Run& run) {
    const bool holds = std::any_of(run.parts.begin(), run.parts.end(),
                                   [](const Part& part) { return part.part.hold != 0; });
    if (!holds) return;
    if (!formed_) formed_ = form_wave();
    const auto next = formed_
                          ? std::span<const msg::WaveRow>{formed_->rows}.first(formed_->row_count)
                          : std::span<const msg::WaveRow>{};
    for (Part& part : run.parts) {
        std::uint32_t at = 0;
        bool followed = false;
        for (std::uint32_t i = 0; formed_ && i < formed_->part_count; ++i) {
            const auto rows = next.subspan(at, formed_->parts[i].rows);
            at += formed_->parts[i].rows;
            if (formed_->parts[i].request != part.part.request) continue;
            const auto own = run.rows_of(part);
            followed = std::any_of(rows.begin(), rows.end(), [&](const msg::WaveRow& row) {
                return std::any_of(own.begin(), own.end(), [&](const msg::WaveRow& above) {
                    return row.parent == above.node.value;
                });
            });
        }
        if (!followed) part.part.hold = 0;
    }
}

/// Lockstep: passes the run on when the draft is half way with the round of each request in it.
void SegmentActor::unpark() {
    if (!parked_) return;
    std::vector<bool> kept(parked_->named.size(), false);
    for (const Part& part : parked_->parts) {
        if (moot(part)) continue;
        const bool waits =
            !part.prefill() && !dispatcher_->halfway(part.part.request, context_->now());
        if (waits) return;
        std::fill_n(kept.begin() + static_cast<std::ptrdiff_t>(part.first), part.part.rows, true);
    }
    const std::shared_ptr<Run> run = std::exchange(parked_, nullptr);
    keep(*run, kept);
    if (!run->parts.empty()) pass_on(*run);
}

void SegmentActor::pass_on(const Run& run) {
    const PoolRef ref = *std::exchange(out_slot_, std::nullopt);
    out_->publish(ref, run.hidden.size_bytes());
    msg::Wave wave{};
    wave.epoch = context_->epoch();
    wave.part_count = static_cast<std::uint32_t>(run.parts.size());
    wave.row_count = static_cast<std::uint32_t>(run.named.size());
    wave.tensor = ref.index;
    wave.tensor_generation = ref.generation;
    for (std::size_t i = 0; i < run.parts.size(); ++i) wave.parts[i] = run.parts[i].part;
    std::copy(run.named.begin(), run.named.end(), wave.rows.begin());
    outbox_->send(*plan_.next, wave);
}

// ---- The judge

Status SegmentActor::announce(Run& run) {
    auto look = std::make_shared<Look>();
    const auto dim = static_cast<std::size_t>(backend_.config().dim);
    for (const JudgedPart& judged : run.judged) {
        const auto part = std::find_if(
            run.parts.begin(), run.parts.end(),
            [&](const Part& candidate) { return candidate.state.get() == &judged.state; });
        if (part == run.parts.end()) continue;  // stopped while it was judged
        const msg::Route route{.request = part->part.request,
                               .attempt = part->state->attempt(),
                               .epoch = context_->epoch()};
        const msg::Verdict verdict =
            make_verdict(route, part->part.wave, static_cast<Position>(judged.committed.size()),
                         judged.rows, judged.judged);
        fault_point(FaultPoint::VerdictMade);
        send_verdict(verdict);
        if (Status applied = apply(*part->state, verdict); !applied) return applied;
        const bool looks_ahead = run.looked_at && !early_->options().ahead.empty();
        if (!looks_ahead || part->state->over()) continue;
        const auto state = judged.hidden.subspan(judged.judged.last_row * dim, dim);
        look->ahead.push_back({.state = part->state,
                               .committed = part->state->text(),
                               .hidden = {state.begin(), state.end()},
                               .levels = {}});
    }
    if (!look->ahead.empty()) {
        look->request = look->ahead.front().state->request();
        look->wave = run.parts.front().part.wave.value;
        look->context = static_cast<std::uint32_t>(look->ahead.front().committed.size());
    }
    start_look(look);
    return {};
}

void SegmentActor::send_verdict(const msg::Verdict& verdict) {
    const msg::Route& route = verdict.route;
    // For jobs, which hear no message: rows with another token here are dead.
    if (verdict.count > 0) {
        context_->declare_fate(route.request, route.attempt,
                               verdict.base + static_cast<Position>(verdict.count) - 1,
                               verdict.tokens[verdict.count - 1]);
    }
    context_->count(counters::kVerdicts);
    context_->count(counters::kTokensProposed, verdict.wave_rows - 1);
    context_->count(counters::kTokensAccepted, verdict.count > 0 ? verdict.count - 1 : 0);
    context_->trace({.kind = TraceKind::Verdict,
                     .request = route.request,
                     .attempt = route.attempt,
                     .id = verdict.wave.value,
                     .position = verdict.base,
                     .count = verdict.count});
    for (const StageId to : plan_.verdict_to) {
        // A draft that hangs, or is slower than the target, must not hold it back: it notices what
        // it missed and rests until it is told anew.
        if (is_hinter(to)) {
            outbox_->offer(to, verdict);
        } else {
            outbox_->send(to, verdict);
        }
    }
}

// ---- The exit

/// What a wave takes, by the runs of this segment that had nothing to fill in.
void SegmentActor::note_wave(const Run& run) {
    const bool prefills = std::any_of(run.parts.begin(), run.parts.end(),
                                      [](const Part& part) { return part.prefill(); });
    if (!early_ || prefills) return;
    const double took = static_cast<double>((context_->now() - run.started).count());
    const double wave = took * static_cast<double>(plan_.count);
    wave_us_ += wave_us_ > 0.0 ? (wave - wave_us_) / kWaveMemory : wave;
}

/// A run starts: if it follows the last look at once, it may have waited for it.
void SegmentActor::price_look(Micros now) {
    const std::optional<Priced> look = std::exchange(priced_, std::nullopt);
    if (!look || wave_us_ <= 0.0) return;
    early_->spent(static_cast<double>(look->took.count()) / wave_us_, now - look->ended <= kAtOnce);
}

/// The exit's job comes after the run was passed on, so that nobody waits for it. It may start
/// late, where others want its core: then rows whose fate is known are not looked at any more.
void SegmentActor::start_look(const std::shared_ptr<Look>& look) {
    for (ExitPart& part : look->exits) EarlyVerify::leave_out_decided(part);
    const std::uint32_t heads = look->head_rows();
    const auto fed = static_cast<std::uint32_t>(look->rows.size());
    if (heads == 0 && fed == 0) return;
    looking_ = look;
    const JobLabel label{.name = "exit",
                         .request = look->request,
                         .id = look->wave,
                         .rows = std::max(heads, fed),
                         .heads = heads,
                         .context = static_cast<std::int32_t>(look->context)};
    look->started = context_->now();
    context_->submit(
        label,
        [this, look] {
            early_->look(look->exits, look->hidden, look->rows);
            early_->look(look->ahead);
            return JobOutcome::Done;
        },
        [this, look](JobOutcome) { finish_look(look); });
}

void SegmentActor::finish_look(const std::shared_ptr<Look>& look) {
    PACE_CHECK(looking_ == look, "an exit's job ends that is not running");
    looking_.reset();
    const std::uint32_t rows = look->head_rows();
    if (rows > 0) {
        const Micros now = context_->now();
        priced_ = Priced{.took = now - look->started, .ended = now};
    }
    context_->count(counters::kExitRows, rows);
    for (const ExitPart& part : look->exits) (void)tell(part);
    for (const AheadPart& part : look->ahead) {
        if (is_gone(*part.state)) continue;
        early_->remember(part);
        if (const auto proposal = early_->ahead(part)) (void)propose(*proposal);
    }
    report(advance());
}

bool SegmentActor::is_gone(const RequestState& state) const {
    return state.over() || find(state.request(), state.attempt()).get() != &state;
}

/// Passes on what an exit says, as far as there is room for it. Whether a next token is on its way
/// to the first layer.
bool SegmentActor::tell(const ExitPart& part) {
    if (part.rows.empty() || is_gone(*part.state)) return false;
    early_->remember(part);
    if (early_->options().names) {
        if (std::optional<msg::Proposal> names = early_->names(part)) {
            names->route.epoch = context_->epoch();
            for (const StageId to : early_->options().names_to) outbox_->offer(to, *names);
        }
    }
    if (!early_->options().proposes) return false;
    const std::optional<msg::Proposal> early = early_->early(part);
    return early && propose(*early);
}

/// To the dispatcher, here or there. It may be lost on the way.
bool SegmentActor::propose(msg::Proposal proposal) {
    proposal.route.epoch = context_->epoch();
    context_->trace({.kind = TraceKind::Proposal,
                     .request = proposal.route.request,
                     .attempt = proposal.route.attempt,
                     .position = proposal.root_position,
                     .count = proposal.count});
    if (!first()) return outbox_->offer(plan_.first_segment, proposal);
    dispatcher_->propose(proposal, Dispatcher::Speaker::Other, context_->now());
    return true;
}

}  // namespace paceline
