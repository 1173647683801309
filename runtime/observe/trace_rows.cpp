#include "runtime/observe/trace_rows.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

namespace paceline {
namespace {

constexpr std::int64_t kTimeMax = std::int64_t{1} << 52U;  // JSON numbers are doubles
constexpr std::int64_t kMarkMicros = 1;                    // of an instant that is drawn as a slice

// Where a slice stands among those of its time. A verdict may be a point of both kinds of arrow;
// the one that it ends comes from a proposal, which is a point of nothing else.
constexpr std::int64_t kProposalOrder = 1;
constexpr std::int64_t kVerifiedOrder = 2;
constexpr std::int64_t kBatchOrder = 3;  // and up along the batch

std::vector<TraceSlice> nested_slices(const std::vector<TraceEvent>& events) {
    std::vector<TraceSlice> slices;
    for (const TraceEvent& event : events) {
        if (is_span(event.kind)) {
            slices.push_back({event.time_us, event.time_us + event.duration_us, &event});
        } else if (is_mark(event.kind)) {
            slices.push_back({event.time_us, event.time_us + kMarkMicros, &event});
        }
    }
    std::stable_sort(slices.begin(), slices.end(), [](const TraceSlice& a, const TraceSlice& b) {
        return std::tuple{a.start, is_span(a.event->kind), a.end} <
               std::tuple{b.start, is_span(b.event->kind), b.end};
    });
    // Of those that begin at once all but the last take no time, so that none encloses another
    // and they may stand in the file in any order.
    for (std::size_t i = 0; i + 1 < slices.size(); ++i) {
        if (slices[i].start == slices[i + 1].start) slices[i].end = slices[i].start;
    }
    // One that would end after the slice it begins in is cut there.
    std::vector<std::int64_t> open_until;
    for (TraceSlice& slice : slices) {
        while (!open_until.empty() && open_until.back() <= slice.start) open_until.pop_back();
        if (!open_until.empty()) slice.end = std::min(slice.end, open_until.back());
        open_until.push_back(slice.end);
    }
    return slices;
}

bool computes(const TraceEvent& event) {
    if (event.kind != TraceKind::Job) return false;
    const std::string_view job = job_name(event.label);
    return job == "prefill" || job == "verify" || job == "exit";
}

/// Gives every slice that a batch passes its part of an arrow. A batch number means another batch
/// after its commit, or when it is formed again: then the next arrow begins.
void follow_batches(std::vector<TraceRow>& rows, std::int64_t& arrows) {
    std::map<std::pair<RequestId, std::uint32_t>, std::vector<TraceSlice*>> points;
    for (TraceRow& row : rows) {
        for (TraceSlice& slice : row.slices) {
            const TraceEvent& event = *slice.event;
            const bool decides = is_mark(event.kind) && event.kind != TraceKind::Proposal;
            if (computes(event) || decides) points[{event.request, event.id}].push_back(&slice);
        }
    }
    const auto order = [](const TraceSlice* slice) {
        const TraceKind kind = slice->event->kind;
        const int rank = kind == TraceKind::Batch     ? 0
                         : kind == TraceKind::Job     ? 1
                         : kind == TraceKind::Verdict ? 2
                                                      : 3;
        return std::pair{slice->start, rank};
    };
    const auto draw = [&arrows](std::span<TraceSlice*> batch) {
        if (batch.size() < 2) return;
        ++arrows;
        std::int64_t step = kBatchOrder;
        for (TraceSlice* slice : batch) {
            const char phase = slice == batch.front() ? 's' : slice == batch.back() ? 'f' : 't';
            slice->arrows.push_back({"batch", phase, arrows});
            slice->order = step++;
        }
    };
    for (auto& [key, slices] : points) {
        std::stable_sort(
            slices.begin(), slices.end(),
            [&](const TraceSlice* a, const TraceSlice* b) { return order(a) < order(b); });
        std::size_t first = 0;
        for (std::size_t i = 1; i <= slices.size(); ++i) {
            const bool over = i == slices.size() || slices[i]->event->kind == TraceKind::Batch ||
                              slices[i - 1]->event->kind == TraceKind::Commit;
            if (!over) continue;
            draw(std::span{slices}.subspan(first, i - first));
            first = i;
        }
    }
}

/// An arrow from every proposal to the first verdict after it that verified its root.
void follow_proposals(std::vector<TraceRow>& rows, std::int64_t& arrows) {
    using Root = std::tuple<RequestId, Attempt, std::int64_t>;
    std::map<Root, std::vector<TraceSlice*>> verdicts;
    for (TraceRow& row : rows) {
        for (TraceSlice& slice : row.slices) {
            const TraceEvent& event = *slice.event;
            if (event.kind != TraceKind::Verdict) continue;
            verdicts[{event.request, event.attempt, std::int64_t{event.position} - 1}].push_back(
                &slice);
        }
    }
    const auto earlier = [](const TraceSlice* a, const TraceSlice* b) {
        return a->start < b->start;
    };
    for (auto& [root, verified] : verdicts)
        std::stable_sort(verified.begin(), verified.end(), earlier);
    for (TraceRow& row : rows) {
        for (TraceSlice& slice : row.slices) {
            const TraceEvent& event = *slice.event;
            if (event.kind != TraceKind::Proposal) continue;
            const auto found = verdicts.find({event.request, event.attempt, event.position});
            if (found == verdicts.end()) continue;
            const auto verified =
                std::lower_bound(found->second.begin(), found->second.end(), &slice, earlier);
            if (verified == found->second.end()) continue;  // it came too late
            ++arrows;
            slice.arrows.push_back({"proposal", 's', arrows});
            slice.order = kProposalOrder;
            (*verified)->arrows.push_back({"proposal", 'f', arrows});
            (*verified)->order = std::max((*verified)->order, kVerifiedOrder);
        }
    }
}

}  // namespace

bool is_span(TraceKind kind) {
    return kind == TraceKind::Job || kind == TraceKind::Wait;
}

bool is_mark(TraceKind kind) {
    return kind == TraceKind::Batch || kind == TraceKind::Proposal || kind == TraceKind::Verdict ||
           kind == TraceKind::Commit;
}

std::vector<TraceRow> trace_rows(std::span<const ProcessTrace> processes) {
    std::vector<TraceRow> rows;
    for (const ProcessTrace& process : processes) rows.push_back({&process, 0, 0});
    std::stable_sort(rows.begin(), rows.end(), [](const TraceRow& a, const TraceRow& b) {
        return std::pair{a.process->stage, a.process->epoch} <
               std::pair{b.process->stage, b.process->epoch};
    });
    std::int64_t tid = 0;
    for (TraceRow& row : rows) {
        row.pid = row.process->stage.value + 1;  // viewers take 0 for the kernel's idle process
        row.tid = ++tid;
        for (const TraceEvent& event : row.process->events) {
            if (event.time_us >= 0 && event.time_us < kTimeMax) row.events.push_back(event);
        }
        std::stable_sort(
            row.events.begin(), row.events.end(),
            [](const TraceEvent& a, const TraceEvent& b) { return a.time_us < b.time_us; });
        row.slices = nested_slices(row.events);
    }
    std::int64_t arrows = 0;
    follow_batches(rows, arrows);
    follow_proposals(rows, arrows);
    return rows;
}

}  // namespace paceline
