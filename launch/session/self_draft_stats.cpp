#include "launch/session/self_draft_stats.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "actors/protocol/counters.hpp"
#include "launch/base/print.hpp"

namespace paceline {
namespace {

double share_of(double part, double whole) {
    return whole > 0.0 ? part / whole : 0.0;
}

/// The two lines of SkipSet::strip().
std::pair<std::string, std::string> strip_lines(const SkipSet& set) {
    const std::string strip = set.strip();
    const std::size_t end = strip.find('\n');
    return {strip.substr(0, end), strip.substr(end + 1)};
}

/// The marks behind a strip's name.
std::string marks_of(const std::string& line) {
    return line.substr(line.rfind(' ') + 1);
}

std::string expected_text(const SelfDraftStats& f, double times_plain) {
    std::string text = print("%.2f with c = %.2f, %.2f with the head (c = %.2f)", f.expected,
                             f.step_cost, f.expected_with_head, f.step_cost_with_head);
    if (times_plain > 0.0) text += print("; measured %.2f", times_plain);
    return text;
}

std::string auto_off_text(const SelfDraftStats& f) {
    std::string text = print("%s; drafted %.0f%% of the rounds, turned off %llu times",
                             f.state->drafts ? "drafts" : "off now", f.drafted_rounds * 100,
                             static_cast<unsigned long long>(f.auto_offs));
    if (f.state->gain > 0.0) text += print("; gain of drafts %.2f", f.state->gain);
    return text;
}

void add_set(const SelfDraftState& state,
             int layers,
             std::vector<std::pair<std::string, std::string>>& lines) {
    if (state.threshold > 0.0) lines.emplace_back("threshold", print("%.3f", state.threshold));
    std::string set = print("%d of %d sub-layers", state.skipped_count, 2 * layers);
    if (state.matchness > 0.0)
        set += print("; matchness %.2f, %d trials", state.matchness, state.trials);
    lines.emplace_back("skipped by drafts", std::move(set));
    if (!state.skipped) return;
    auto [attention, mlp] = strip_lines(*state.skipped);
    lines.emplace_back("", std::move(attention));
    lines.emplace_back("", std::move(mlp));
}

void add_state(const SelfDraftStats& f, std::vector<std::pair<std::string, std::string>>& lines) {
    const SelfDraftState& state = *f.state;
    if (f.auto_off) lines.emplace_back("auto-off", auto_off_text(f));
    add_set(state, f.layers, lines);
}

nlohmann::json to_json(const SelfDraftState& state, int layers) {
    nlohmann::json json{{"drafts", state.drafts},
                        {"gain", state.gain},
                        {"threshold", state.threshold},
                        {"matchness", state.matchness},
                        {"trials", state.trials},
                        {"skipped", state.skipped_count},
                        {"skipped_ratio", share_of(state.skipped_count, 2.0 * layers)}};
    if (!state.skipped) return json;
    const auto [attention, mlp] = strip_lines(*state.skipped);
    json["skipped_set"] = state.skipped->text();
    json["strip"] = {{"attention", marks_of(attention)}, {"mlp", marks_of(mlp)}};
    return json;
}

}  // namespace

SelfDraftView self_draft_view(const ModelConfig& model, bool auto_off, int short_list) {
    const double dim = model.dim;
    const double attention = 2.0 * dim * (model.q_dim() + model.kv_dim());
    const double mlp = 3.0 * dim * model.ffn_dim;
    const double head = dim * model.vocab_size;
    return {.layers = model.layers,
            .head_share = share_of(head, model.layers * (attention + mlp) + head),
            .drafted_head =
                short_list > 0 ? std::min(1.0, share_of(short_list, model.vocab_size)) : 1.0,
            .auto_off = auto_off};
}

SelfDraftStats self_draft_stats(const SelfDraftView& view,
                                const VerdictTally& verdicts,
                                const std::array<std::uint64_t, kCounters>& counters,
                                double seconds) {
    const auto count = [&](Counter c) { return counters[static_cast<std::size_t>(c)]; };
    const auto number = [&](Counter c) { return static_cast<double>(count(c)); };
    const auto rounds = static_cast<double>(verdicts.batches);
    const auto tokens = static_cast<double>(verdicts.emitted);
    const auto per_token = [&](Counter c) { return share_of(number(c) / 2, tokens); };
    const auto share = [&](Counter c) { return share_of(number(c) / 1e6, seconds); };
    SelfDraftStats f;
    f.layers = view.layers;
    f.auto_off = view.auto_off;
    f.passes = count(counters::kDraftForwards);
    f.steps = count(counters::kDraftRows);
    const auto steps = static_cast<double>(f.steps);
    f.tokens_per_forward = share_of(tokens, rounds);
    f.acceptance_per_step = share_of(static_cast<double>(verdicts.accepted), steps);
    f.chain_acceptance =
        share_of(number(counters::kChainAccepted), number(counters::kChainProposed));
    f.drafted_rounds = share_of(static_cast<double>(verdicts.drafts), rounds);
    f.layer_rows = {.draft = per_token(counters::kDraftSublayers),
                    .verify = per_token(counters::kVerifySublayers),
                    .optimise = per_token(counters::kOptimiseSublayers)};
    f.prefill_layer_rows = number(counters::kPrefillSublayers) / 2;
    f.time = {.draft = share(counters::kDraftMicros),
              .verify = share(counters::kVerifyMicros),
              .optimise = share(counters::kOptimiseMicros)};
    f.optimise_jobs = count(counters::kOptimiseJobs);
    f.auto_offs = count(counters::kAutoOffs);
    f.step_cost = share_of(number(counters::kDraftSublayers), steps * 2 * view.layers);
    f.step_cost_with_head =
        f.step_cost * (1.0 - view.head_share) + view.head_share * view.drafted_head;
    if (f.steps == 0) f.step_cost = f.step_cost_with_head = 0.0;
    // (M - 1) / alpha are the draft steps per forward: so it also holds where nothing was accepted.
    const double steps_per_round = share_of(steps, rounds);
    f.expected = f.tokens_per_forward / (1.0 + f.step_cost * steps_per_round);
    f.expected_with_head = f.tokens_per_forward / (1.0 + f.step_cost_with_head * steps_per_round);
    f.state = self_draft_state(view.gauges, view.layers);
    return f;
}

std::vector<std::pair<std::string, std::string>> draft_skip_lines(
    const DraftSkipView& view, const std::array<std::uint64_t, kCounters>& counters) {
    std::vector<std::pair<std::string, std::string>> lines;
    const std::optional<SelfDraftState> state = self_draft_state(view.gauges, view.layers);
    if (!state) return lines;
    add_set(*state, view.layers, lines);
    const std::uint64_t jobs = counters[static_cast<std::size_t>(counters::kOptimiseJobs)];
    lines.emplace_back("trials and programmes",
                       print("%llu jobs", static_cast<unsigned long long>(jobs)));
    return lines;
}

nlohmann::json draft_skip_json(const DraftSkipView& view,
                               const std::array<std::uint64_t, kCounters>& counters) {
    nlohmann::json json{
        {"optimise_jobs", counters[static_cast<std::size_t>(counters::kOptimiseJobs)]}};
    const std::optional<SelfDraftState> state = self_draft_state(view.gauges, view.layers);
    if (state) json["state"] = to_json(*state, view.layers);
    return json;
}

std::vector<std::pair<std::string, std::string>> self_draft_lines(const SelfDraftStats& f,
                                                                  double times_plain) {
    std::vector<std::pair<std::string, std::string>> lines;
    lines.emplace_back("M", print("%.2f tokens per target forward, %.2f of them accepted",
                                  f.tokens_per_forward, std::max(f.tokens_per_forward - 1.0, 0.0)));
    lines.emplace_back("alpha", print("%.2f accepted per draft step, %.2f of first choices",
                                      f.acceptance_per_step, f.chain_acceptance));
    lines.emplace_back("layer-rows",
                       print("%.1f per token: draft %.1f, verify %.1f, optimise %.1f (plain: %d)",
                             f.layer_rows.all(), f.layer_rows.draft, f.layer_rows.verify,
                             f.layer_rows.optimise, f.layers));
    lines.emplace_back("time", print("draft %.1f%%, verify %.1f%%, optimise %.2f%% in %llu jobs",
                                     f.time.draft * 100, f.time.verify * 100, f.time.optimise * 100,
                                     static_cast<unsigned long long>(f.optimise_jobs)));
    if (f.steps > 0) lines.emplace_back("expected speed-up", expected_text(f, times_plain));
    if (f.state) add_state(f, lines);
    return lines;
}

nlohmann::json to_json(const SelfDraftStats& f) {
    nlohmann::json json{
        {"passes", f.passes},
        {"draft_steps", f.steps},
        {"tokens_per_forward", f.tokens_per_forward},
        {"acceptance_per_step", f.acceptance_per_step},
        {"chain_acceptance", f.chain_acceptance},
        {"drafted_rounds", f.drafted_rounds},
        {"layer_rows_per_token",
         {{"draft", f.layer_rows.draft},
          {"verify", f.layer_rows.verify},
          {"optimise", f.layer_rows.optimise},
          {"all", f.layer_rows.all()},
          {"plain", f.layers}}},
        {"prefill_layer_rows", f.prefill_layer_rows},
        {"time_shares",
         {{"draft", f.time.draft}, {"verify", f.time.verify}, {"optimise", f.time.optimise}}},
        {"optimise_jobs", f.optimise_jobs},
        {"auto_offs", f.auto_offs},
        {"step_cost", f.step_cost},
        {"step_cost_with_head", f.step_cost_with_head},
        {"expected_speedup", f.expected},
        {"expected_speedup_with_head", f.expected_with_head}};
    if (f.state) json["state"] = to_json(*f.state, f.layers);
    return json;
}

}  // namespace paceline
