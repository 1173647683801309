// SegmentRoles: the roles that are attached to a segment, and the events of the segment that go to
// several of them.
//
//     dispatcher    the first segment (no segment before it): what the layers work on next
//     early_verify  a segment with an exit: proposals ahead of the verdict
//     final_verify  the last segment (no segment after it): the verdicts
//     tap           a segment beside a draft that chooses its layers by the residuals
//     features      a last segment beside an EAGLE draft: the states that it reads
//     self_draft    a first segment that drafts for itself: jobs between the runs
//
// Owns the roles; the plan decides at construction which of them there are. Threads: the actor's
// loop.
#pragma once

#include <memory>
#include <optional>

#include "actors/decoding/retained_states.hpp"
#include "actors/segment/dispatcher.hpp"
#include "actors/segment/early_verify.hpp"
#include "actors/segment/final_verify.hpp"
#include "actors/segment/segment_host.hpp"
#include "actors/segment/segment_plan.hpp"
#include "actors/segment/segment_run.hpp"
#include "actors/segment/states/feature_sender.hpp"
#include "actors/segment/states/residual_tap.hpp"
#include "actors/self_draft/self_draft.hpp"

namespace paceline {

struct SegmentRoles {
    /// Borrows host and backend; attaches the roles to the host's inbox.
    SegmentRoles(const SegmentPlan& plan, SegmentHost& host, Backend& backend);
    SegmentRoles(const SegmentRoles&) = delete;
    SegmentRoles& operator=(const SegmentRoles&) = delete;

    void start(StageContext& context);
    /// An attempt begins.
    void begin(const std::shared_ptr<RequestState>& state);
    /// It was stopped, or all of them are.
    void ended(RequestId request);
    void all_ended();
    /// A verdict was applied to the state: `step` is what it did.
    void follow(RequestState& state, const msg::Verdict& verdict, const TreeUpdate& step);
    /// The run's rows are built. Errors: as FinalVerify::prepare().
    Status prepare(SegmentRun& run);
    /// Whether a role's job or held run comes before the next run.
    [[nodiscard]] bool busy() const;
    /// Whether an exit reads the run's hidden states.
    [[nodiscard]] bool exit_reads_run() const { return early_verify && early_verify->reads_run(); }
    /// The adapter that a run's rows go through at the exit of a self-draft; nullptr: none.
    [[nodiscard]] ExitAdapter* exit_adapter() {
        return self_draft ? self_draft->adapter() : nullptr;
    }
    /// Whether its hidden states are read after its layers.
    [[nodiscard]] bool reads_run() const { return features || exit_reads_run(); }
    /// Rows of the run whose head is computed in its job.
    [[nodiscard]] std::uint32_t heads_of_run() const;

    std::optional<Dispatcher> dispatcher;
    std::optional<EarlyVerify> early_verify;
    std::optional<FinalVerify> final_verify;
    std::optional<ResidualTap> tap;
    std::optional<FeatureSender> features;
    std::optional<SelfDraft> self_draft;
    std::optional<RetainedStates> retained;
};

}  // namespace paceline
