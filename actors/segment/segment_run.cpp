#include "actors/segment/segment_run.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

#include "ipc/base/check.hpp"
#include "ipc/wire/cancel_board.hpp"

namespace paceline {

std::vector<DrawnSiblingsPtr> drawn_below(const msg::Batch& batch,
                                          std::uint32_t first,
                                          std::uint32_t count) {
    std::vector<DrawnSiblingsPtr> drawn;
    std::span<const msg::TokenWeight> left{batch.drawn_tokens};
    for (const msg::BatchDraw& draw : batch.draws) {
        const auto support = left.first(draw.support);
        left = left.subspan(draw.support);
        if (draw.row < first || draw.row - first >= count) continue;
        drawn.resize(count);
        drawn[draw.row - first] = std::make_shared<const DrawnSiblings>(
            DrawnSiblings{.support = {support.begin(), support.end()}, .drawn = draw.drawn});
    }
    return drawn;
}

void SegmentRun::add_draws(msg::Batch& batch) const {
    for (const RunPart& part : parts) {
        const bool draws = part.state->spec().acceptance == AcceptanceRule::Rejection;
        if (part.prefill() || !draws) continue;
        for (std::size_t row = part.first; row < part.first + part.part.rows; ++row) {
            const TreeNode* node = part.state->tree().find(rows[row].node);
            if (node == nullptr || node->drawn_below == nullptr) continue;
            const DrawnSiblings& drawn = *node->drawn_below;
            batch.draws.push_back({.row = static_cast<std::uint32_t>(row),
                                   .support = static_cast<std::uint16_t>(drawn.support.size()),
                                   .drawn = static_cast<std::uint16_t>(drawn.drawn)});
            batch.drawn_tokens.insert(batch.drawn_tokens.end(), drawn.support.begin(),
                                      drawn.support.end());
        }
    }
}

bool SegmentRun::verifies() const {
    return std::any_of(parts.begin(), parts.end(),
                       [](const RunPart& part) { return !part.prefill(); });
}

Status SegmentRun::collect(const SegmentRequests& requests, std::span<const WaitingPart> waiting) {
    for (auto part = waiting.begin(); part != waiting.end(); ++part) {
        const auto same = [&](const WaitingPart& other) {
            return other.part.request == part->part.request;
        };
        if (std::any_of(waiting.begin(), part, same)) continue;  // it went with an earlier one
        RunPart one{.state = requests.find(part->part.request, part->part.attempt),
                    .part = part->part,
                    .first = rows.size(),
                    .committed = {}};
        PACE_CHECK(one.state != nullptr, "a part of a request that is not here is run");
        one.part.rows = 0;
        one.part.hold = 0;
        for (auto merged = part; merged != waiting.end(); ++merged) {
            if (!same(*merged)) continue;
            join_cost(*merged);
            one.part.batch = merged->part.batch;  // a verdict answers the newest of them
            if (Status placed = place_rows(one, *merged); !placed) return placed;
        }
        one.committed = one.state->text();
        if (one.part.rows > 0) parts.push_back(one);
    }
    job.fit_memory();
    build_rows(job.rows, job.path_slots);
    return {};
}

/// The batch's cost so far is known if the run has parts of one batch alone, without a prompt.
void SegmentRun::join_cost(const WaitingPart& waiting) {
    const bool first = !cost_joined_.has_value();
    if (first) cost_joined_ = waiting.cost;
    const bool known = waiting.part.kind == msg::BatchKind::Verify &&
                       *cost_joined_ == waiting.cost && (!waiting.cost || waiting.cost->known());
    cost_known_ = cost_known_ && known;
    if (waiting.cost) cost = *waiting.cost;
}

void SegmentRun::charge(Micros took) {
    const auto micros = static_cast<std::uint32_t>(
        std::clamp<Micros::rep>(took.count(), 1, std::numeric_limits<std::uint32_t>::max() / 2));
    cost = cost_known_ ? msg::BatchCost{.sum_us = cost.sum_us + micros,
                                        .longest_us = std::max(cost.longest_us, micros)}
                       : msg::BatchCost{};
}

/// Adds the rows that are still in the tree, with their hidden states from the segment before. The
/// first segment has such states only of rows that it has begun as a draft.
Status SegmentRun::place_rows(RunPart& part, const WaitingPart& waiting) {
    if (part.prefill()) {
        Status taken = part.state->take_prefill(waiting.part.base, waiting.rows);
        if (!taken) return taken;
    }
    ConstHiddenRows source;
    if (waiting.copied) {
        source = waiting.copied->rows;
        copies_.push_back(waiting.copied);
    }
    if (waiting.tensor) {
        const auto viewed = waiting.tensor->view(waiting.tensor_rows * dim());
        if (!viewed) return viewed.error();
        source = viewed.value();
        tensors_.push_back(waiting.tensor);
    }
    for (const msg::BatchRow& row : waiting.rows) {
        if (!part.prefill() && part.state->tree().find(row.node) == nullptr) continue;
        const Result<RowSource> input = input_of(row, {source, row.tensor_row}, part.prefill());
        if (!input) return input.error();
        job.inputs.push_back(input.value());
        rows.push_back(row);
        rows.back().tensor_row = static_cast<std::uint32_t>(rows.size() - 1);
        ++part.part.rows;
    }
    return {};
}

/// A row of a prefill that begins where this segment's layers end gets the state that it had when
/// it ran here; one that begins later passes through, and has none.
Result<RowSource> SegmentRun::input_of(const msg::BatchRow& row,
                                       const RowSource& received,
                                       bool prefill) const {
    const auto end = static_cast<std::uint32_t>(2 * job.backend.last_layer());
    if (!prefill || row.start < end) return received;
    if (passes_through(row)) return RowSource{};
    if (job.retained == nullptr || !job.retained->has(row.slot)) {
        return Error{Errc::Protocol,
                     fmt::format("a row of a prompt begins at sub-layer {}, behind this segment, "
                                 "which has retained no state of its slot {}",
                                 row.start, row.slot)};
    }
    return job.retained->state_of(row.slot);
}

void SegmentRun::release() {
    job.inputs.clear();
    tensors_.clear();
    copies_.clear();
}

void SegmentRun::forget_tensors() {
    for (const std::shared_ptr<TensorShare>& tensor : tensors_) tensor->forget();
}

void SegmentRun::build_rows(std::vector<Row>& built, std::vector<KvSlot>& paths) const {
    const Backend& backend = job.backend;
    std::vector<std::size_t> path_begin;
    for (const RunPart& part : parts) {
        const RequestState& state = *part.state;
        for (const msg::BatchRow& name : rows_of(part)) {
            Row row;
            row.token = name.token;
            row.position = name.position;
            row.slot = name.slot;
            row.last = 2 * backend.last_layer();
            row.first = std::clamp(static_cast<std::int32_t>(name.start), 2 * backend.first_layer(),
                                   row.last);
            row.prefix_slots = state.slots().data();
            row.prefix_count = name.position + 1;
            path_begin.push_back(paths.size());
            if (!part.prefill()) {
                const std::vector<const TreeNode*> path = state.tree().path(name.node);
                row.path_count = static_cast<std::int32_t>(path.size());
                row.prefix_count = name.position + 1 - row.path_count;
                for (const TreeNode* node : path) paths.push_back(node->slot);
            }
            built.push_back(row);
        }
    }
    for (std::size_t i = 0; i < built.size(); ++i) {
        if (built[i].path_count > 0) built[i].path_slots = paths.data() + path_begin[i];
    }
}

void SegmentRun::watch(StageContext& context, bool verdicts_are_sent) {
    if (parts.size() == 1 && may_be_cut()) {
        const RequestState& state = *parts.front().state;
        job.cancel.watch(context.cancel_word(state.request()),
                         CancelBoard::mark_of(state.request(), state.attempt()));
    }
    for (const RunPart& part : parts) {
        const RequestState& state = *part.state;
        const std::size_t place = job.watermarks.add(
            {.request = state.request(),
             .attempt = state.attempt(),
             .watermark = verdicts_are_sent ? context.watermark_cell(state.request()) : nullptr,
             .word = part.again() ? nullptr : context.cancel_word(state.request())});
        const auto own = rows_of(part);
        for (std::size_t i = 0; i < own.size(); ++i) {
            WatermarkWatch::WatchedRow watched{.part = place};
            if (!part.prefill()) {
                const std::vector<const TreeNode*> path = state.tree().path(own[i].node);
                watched.first = path.front()->position;
                for (const TreeNode* node : path) watched.tokens.push_back(node->token);
                const auto end = own.begin() + static_cast<std::ptrdiff_t>(i);
                const auto parent = std::find_if(own.begin(), end, [&](const msg::BatchRow& row) {
                    return row.node.value == own[i].parent;
                });
                if (parent != end) {
                    watched.parent = part.first + static_cast<std::size_t>(parent - own.begin());
                }
            }
            job.watermarks.add(std::move(watched));
        }
    }
    job.cancel.watch_rows(&job.watermarks);
}

bool SegmentRun::may_be_cut() const {
    return std::none_of(parts.begin(), parts.end(),
                        [](const RunPart& part) { return part.again(); });
}

bool SegmentRun::stale(const SegmentRequests& requests) const {
    return std::all_of(parts.begin(), parts.end(), [&](const RunPart& part) {
        if (requests.gone(*part.state)) return true;
        return !part.prefill() && !part.state->wants(rows_of(part));
    });
}

void SegmentRun::drop_stale(const SegmentRequests& requests, JobOutcome outcome, bool whole_parts) {
    std::vector<bool> kept(rows.size(), false);
    for (std::size_t p = 0; p < parts.size(); ++p) {
        const RunPart& part = parts[p];
        if (requests.gone(*part.state)) continue;
        bool lives = false;
        for (std::size_t row = part.first; row < part.first + part.part.rows; ++row) {
            const bool stale = job.watermarks.stale(row);
            const bool there = part.prefill() || part.state->tree().find(rows[row].node) != nullptr;
            kept[row] = outcome == JobOutcome::Done && there && !stale;
            lives = lives || !stale;
        }
        const bool wanted = part.prefill() || part.state->wants(rows_of(part));
        const bool cut_short = outcome == JobOutcome::Cancelled && lives;
        // The conductor has cancelled the attempt, and its Stop is under way. No row may be
        // computed after this gap.
        if (wanted && (cut_short || job.watermarks.is_cancelled(p))) part.state->stop();
    }
    keep(kept, whole_parts);
}

void SegmentRun::keep(const std::vector<bool>& kept, bool whole_parts) {
    std::vector<RunPart> left;
    std::size_t count = 0;
    for (RunPart& part : parts) {
        const std::size_t end = part.first + part.part.rows;
        const auto any_kept = std::find(kept.begin() + static_cast<std::ptrdiff_t>(part.first),
                                        kept.begin() + static_cast<std::ptrdiff_t>(end), true);
        if (any_kept == kept.begin() + static_cast<std::ptrdiff_t>(end)) continue;
        left.push_back(part);
        if (whole_parts) continue;
        left.back().first = count;
        for (std::size_t row = part.first; row < end; ++row) {
            if (kept[row]) rows[count++] = rows[row];
        }
        left.back().part.rows = static_cast<std::uint32_t>(count - left.back().first);
    }
    parts = std::move(left);
    if (whole_parts) return;
    rows.resize(count);
}

JobLabel SegmentRun::label() const {
    const Backend& backend = job.backend;
    JobLabel label{
        .name = verifies() ? "verify" : "prefill",
        .request = parts.front().state->request(),
        .id = parts.front().part.batch.value,
        .rows = static_cast<std::uint32_t>(rows.size()),
        .layers = static_cast<std::uint32_t>(backend.last_layer() - backend.first_layer())};
    for (const msg::BatchRow& row : rows) label.context = std::max(label.context, row.position + 1);
    return label;
}

}  // namespace paceline
