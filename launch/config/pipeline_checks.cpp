#include "launch/config/pipeline_checks.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <map>
#include <set>

namespace paceline {

namespace {

/// What is wrong; empty: nothing.
using Complaint = std::string;

std::vector<const StageConfig*> segments_of(const PipelineConfig& config) {
    std::vector<const StageConfig*> found;
    for (const StageConfig& stage : config.stages) {
        if (stage.role == StageRole::Segment) found.push_back(&stage);
    }
    return found;
}

std::size_t exits_of(const PipelineConfig& config) {
    return static_cast<std::size_t>(std::count_if(config.stages.begin(), config.stages.end(),
                                                  [](const StageConfig& s) { return s.exit; }));
}

Complaint check_counts(const PipelineConfig& config) {
    std::set<std::string> names;
    std::map<StageRole, int> count;
    for (const StageConfig& stage : config.stages) {
        if (!names.insert(stage.name).second)
            return "[[stage]] name \"" + stage.name + "\" is used twice";
        ++count[stage.role];
    }
    const int segments = count[StageRole::Segment];
    if (segments < 1 || segments > static_cast<int>(kSegmentsMax)) {
        return fmt::format("has {} stages with role = \"segment\", expected 1 to {}", segments,
                           kSegmentsMax);
    }
    for (const auto& [role, word] :
         {std::pair{StageRole::Draft, "draft"}, std::pair{StageRole::Correct, "correct"}}) {
        if (count[role] <= 1) continue;
        return fmt::format("has {} stages with role = \"{}\", expected at most 1", count[role],
                           word);
    }
    if (count[StageRole::Draft] == 1 && !config.draft)
        return "has a stage with role = \"draft\" but no [draft] table";
    if (count[StageRole::Draft] == 0 && config.draft)
        return "has a [draft] table but no stage with role = \"draft\"";
    return {};
}

/// Logs and tables know a process by one name: its stages' `process`, or its only stage's own.
Complaint check_processes(const PipelineConfig& config) {
    for (const StageConfig& stage : config.stages) {
        for (const StageConfig& other : config.stages) {
            if (!stage.process.empty() || stage.name != other.process) continue;
            return "[[stage]] \"" + other.name + "\": process = \"" + other.process +
                   "\" is the name of a stage outside of it";
        }
    }
    return {};
}

/// A GPU's memory belongs to one process: stages on the same GPU of one machine must share theirs.
Complaint check_shared_gpus(const PipelineConfig& config) {
    std::map<std::pair<std::string, int>, const StageConfig*> first_on;
    for (const StageConfig& stage : config.stages) {
        for (const int gpu : stage.device.gpus()) {
            const auto [at, is_first] = first_on.emplace(std::pair{stage.node, gpu}, &stage);
            const StageConfig& other = *at->second;
            const bool same = &other == &stage;  // a GPU that is named twice: gpu_check.cpp
            if (is_first || same || (!stage.process.empty() && stage.process == other.process))
                continue;
            return "[[stage]] \"" + stage.name + "\": device = \"" + to_text(Device{gpu}) +
                   "\" is that of \"" + other.name +
                   "\" too; stages that share a GPU must be in one process (process = \"...\", the "
                   "same in both)";
        }
    }
    return {};
}

/// CPUs and GPUs sum in different orders; a text is of one of them. A draft may be anywhere.
Complaint check_one_kind_of_device(const PipelineConfig& config) {
    const std::vector<const StageConfig*> segments = segments_of(config);
    for (const StageConfig* segment : segments) {
        const StageConfig& first = *segments.front();
        if (segment->device.gpu.has_value() == first.device.gpu.has_value()) continue;
        return "[[stage]] \"" + segment->name + "\": device = \"" + to_text(segment->device) +
               "\", that of \"" + first.name + "\" is \"" + to_text(first.device) +
               "\"; a CPU and a GPU do not give equal bits: put all segments on CPUs, or all on "
               "GPUs";
    }
    return {};
}

Complaint check_exit_uses(const PipelineConfig& config) {
    if (!config.exit) return {};
    const std::size_t exits = exits_of(config);
    if (exits == 0 && config.exit->ahead == 0)
        return "has an [exit] table but no stage with exit = true or role = \"early-verify\"";
    if (exits == 0 && (config.exit->options.sends_candidates || config.exit->options.proposes))
        return "[exit] candidates or proposes, but no stage has exit = true";
    if (exits > 0 && !config.exit->options.sends_candidates && !config.exit->options.proposes)
        return "[exit] neither sends candidates nor proposes: the exit would do nothing";
    return {};
}

Complaint check_exits(const PipelineConfig& config) {
    const std::vector<const StageConfig*> segments = segments_of(config);
    for (const StageConfig* segment : segments) {
        const bool last = segment == segments.back();
        if (segment->final && !last) {
            return "[[stage]] \"" + segment->name +
                   "\": role = \"final-verify\" is for the last segment, \"" +
                   segments.back()->name + "\" comes after it";
        }
        if (segment->exit && last) {
            return "[[stage]] \"" + segment->name +
                   "\": an exit at the end of the last segment; an exit needs a later segment "
                   "whose layers it is ahead of";
        }
    }
    return check_exit_uses(config);
}

/// Only what passes hidden states on to a later segment has any to keep.
Complaint check_retained(const PipelineConfig& config) {
    const StageConfig* last = segments_of(config).back();
    for (const StageConfig& stage : config.stages) {
        if (stage.retain_mb == 0 || stage.one_of_many) continue;
        if (is_segment(stage) && &stage != last) continue;
        return fmt::format(
            "[[stage]] \"{}\": retain_mb = {}: it has no segment behind it to pass "
            "hidden states on to",
            stage.name, stage.retain_mb);
    }
    return {};
}

Complaint check_names(const PipelineConfig& config) {
    const bool grows = config.draft && config.draft->growth.exit_alternatives > 0;
    if (grows && !config.exit_sends_candidates()) {
        return fmt::format(
            "[draft] exit_alternatives = {} needs an exit that sends candidates (role = "
            "\"early-verify\")",
            config.draft->growth.exit_alternatives);
    }
    if (config.stage_of(StageRole::Correct) != nullptr && config.draft) {
        if (config.draft->is_tapped())
            return "[draft] choose = \"programme\" is for a draft without a stage \"correct\"";
        if (config.draft->searches())
            return "[draft] choose = \"search\" is for a draft without a stage \"correct\"";
    }
    if (config.stage_of(StageRole::Correct) != nullptr &&
        (!config.draft || !config.exit_sends_candidates())) {
        return "role = \"correct\" needs a stage with role = \"draft\" and an exit that sends "
               "candidates "
               "(role = \"early-verify\")";
    }
    if (!config.exit_sends_candidates()) return {};
    if (!config.draft)
        return "[exit] candidates = true, but there is no stage with role = \"draft\" to receive "
               "them";
    if (!grows) {
        return "[exit] candidates = true, but no stage continues them: give [draft] "
               "exit_alternatives = 1 or more";
    }
    if (exits_of(config) != 1) {
        return fmt::format("[exit] candidates = true is for one exit, {} stages have one",
                           exits_of(config));
    }
    return {};
}

Complaint check_draws(const PipelineConfig& config) {
    if (!config.draft || !config.draft->growth.draws ||
        config.acceptance == AcceptanceRule::Rejection) {
        return {};
    }
    const char* rule = config.acceptance == AcceptanceRule::Coupled ? "coupled" : "unverified";
    return fmt::format(
        "[draft] draws = true is for [acceptance] rule = \"rejection\", this is \"{}\"", rule);
}

/// Rows that are observed pay in later rounds, which the account of costs and gains does not know;
/// they stand beside other candidates.
Complaint check_observed(const PipelineConfig& config) {
    if (!config.draft || !config.draft->observes()) return {};
    const DraftConfig& draft = *config.draft;
    const DispatchOptions& schedule = config.schedule.options;
    const std::string source = "[draft] source = \"" + source_text(draft) + "\"";
    if (schedule.controller == Controller::On)
        return source +
               " needs [schedule] controller = \"guard\" or \"off\": its rows pay in later rounds";
    const bool phrases = draft.guess == DraftGuess::Phrases;
    if (phrases && config.stage_of(StageRole::Correct) != nullptr)
        return source + " is for a draft without a stage \"correct\"";
    const bool beside = draft.lookup || draft.guess == DraftGuess::Lookahead || phrases;
    if (beside && schedule.shape != BatchShape::Tree)
        return source + " needs [schedule] shape = \"tree\"";
    if (phrases) {
        const std::int32_t rows =
            1 + draft.growth.gamma + draft.phrases * (draft.lookahead.ngram - 1);
        if (rows <= static_cast<std::int32_t>(schedule.rows_max)) return {};
        return fmt::format(
            "[draft] gamma = {}, phrases = {}, ngram = {}: a batch of {} rows, [schedule] rows_max "
            "is {}",
            draft.growth.gamma, draft.phrases, draft.lookahead.ngram, rows, schedule.rows_max);
    }
    if (draft.guess != DraftGuess::Lookahead) return {};
    if (schedule.verify_reach_min > 0.0F) {
        return fmt::format("[schedule] reach_min = {}: {} needs 0, its window is not probable",
                           schedule.verify_reach_min, source);
    }
    const LookaheadOptions& of = draft.lookahead;
    if (of.rows() <= static_cast<std::int32_t>(schedule.rows_max)) return {};
    return fmt::format(
        "[draft] guess_window = {}, ngram = {}, guesses = {}: a batch of {} rows, [schedule] "
        "rows_max is "
        "{}",
        of.window, of.ngram, of.guesses, of.rows(), schedule.rows_max);
}

/// A tree of levels is verified as a tree, with a row for each candidate that it proposes.
Complaint check_levels(const PipelineConfig& config) {
    if (!config.draft || !config.draft->growth.by_levels()) return {};
    const std::string tree = "[draft] tree = \"eagle2\"";
    if (config.stage_of(StageRole::Correct) != nullptr)
        return tree + " is for a draft without a stage \"correct\"";
    const DispatchOptions& schedule = config.schedule.options;
    if (schedule.shape != BatchShape::Tree) return tree + " needs [schedule] shape = \"tree\"";
    const std::int32_t nodes = config.draft->growth.tree_nodes;
    if (nodes < static_cast<std::int32_t>(schedule.rows_max)) return {};
    return fmt::format(
        "[draft] tree_nodes = {}: a batch of {} rows with the root, [schedule] rows_max is {}",
        nodes, nodes + 1, schedule.rows_max);
}

Complaint check_lockstep(const PipelineConfig& config) {
    const StartRule mode = dispatch_options(config).start;
    const bool paced = config.draft && config.draft->growth.pace == DraftPace::Lockstep;
    if (mode != StartRule::AtOnce && !config.draft) {
        const char* word = mode == StartRule::Sequential ? "sequential" : "lockstep";
        return std::string{"[schedule] mode = \""} + word +
               "\" needs a stage with role = \"draft\" to wait for";
    }
    if ((mode == StartRule::Lockstep) != paced)
        return "lockstep is for both or neither: [schedule] mode and [draft] pace";
    const bool exit_waits = config.exit && config.exit->options.lockstep;
    if (paced && config.draft->growth.gamma_early > 0 && !config.exit_sends_candidates())
        return "[draft] gamma_early needs an exit that sends candidates (role = \"early-verify\")";
    if (exit_waits && (!paced || config.draft->growth.gamma_early == 0)) {
        return "[exit] lockstep = true waits for the first steps of a draft with pace = "
               "\"lockstep\" and gamma_early = 1 or more";
    }
    if (exit_waits && !segments_of(config).front()->exit)
        return "[exit] lockstep = true is for an exit of the first segment";
    const DispatchOptions& schedule = config.schedule.options;
    if (paced && schedule.batches_in_flight_max > 1) {
        return fmt::format(
            "[schedule] batches_in_flight = {}, with mode = \"lockstep\" there is one at a time",
            schedule.batches_in_flight_max);
    }
    if (paced && config.exit && config.exit->options.proposes)
        return "[exit] proposes = true starts tokens at once, lockstep does not";
    return {};
}

Complaint check_self_draft_alone(const PipelineConfig& config) {
    if (!config.self_draft) return {};
    const SelfDraftConfig& self = *config.self_draft;
    if (config.draft) return "has a [draft] and a [self_draft] table; one of them proposes";
    if (config.exit) return "has an [exit] and a [self_draft] table; one of them proposes";
    if (self.source == SelfDraftSource::Skip && config.segments() > 1) {
        return fmt::format(
            "[self_draft] source = \"skip\" runs through all layers in one process: one segment, "
            "the file has {}",
            config.segments());
    }
    const bool tree = config.schedule.options.shape == BatchShape::Tree;
    if (self.tree != SelfDraftTree::None && !tree)
        return "[self_draft] tree needs [schedule] shape = \"tree\"";
    return {};
}

}  // namespace

void complete_pipeline(PipelineConfig& config) {
    // "segments = N" with exits means the ends between them.
    for (auto stage = config.stages.rbegin(); stage != config.stages.rend(); ++stage) {
        if (stage->role != StageRole::Segment) continue;
        if (stage->one_of_many) stage->exit = false;
        break;
    }
    if (exits_of(config) > 0 && !config.exit) config.exit = ExitConfig{};
    if (config.exit && !config.exit->candidates_given) {
        config.exit->options.sends_candidates =
            exits_of(config) > 0 && config.draft && !config.exit->options.proposes;
    }
}

Status check_pipeline(const PipelineConfig& config) {
    for (const auto check :
         {check_counts, check_processes, check_shared_gpus, check_one_kind_of_device, check_exits,
          check_retained, check_names, check_draws, check_observed, check_levels, check_lockstep,
          check_self_draft_alone}) {
        if (const Complaint what = check(config); !what.empty())
            return Error{Errc::BadArgument, config.file + ": " + what};
    }
    return {};
}

}  // namespace paceline
