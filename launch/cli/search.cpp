#include "launch/cli/search.hpp"

#include <algorithm>
#include <cstdio>
#include <fmt/core.h>
#include <optional>

#include "actors/self_draft/skip_search.hpp"
#include "launch/base/exit_codes.hpp"
#include "launch/base/option_checks.hpp"
#include "launch/base/output_file.hpp"
#include "launch/base/progress_bar.hpp"
#include "launch/base/report.hpp"
#include "launch/base/text_output.hpp"
#include "launch/load/load_model.hpp"
#include "launch/load/prompt_sets.hpp"
#include "launch/load/stored_types.hpp"
#include "launch/placement/memory_plan.hpp"

namespace paceline {
namespace {

constexpr const char* kSearchCommand = "search";

/// The best set of one size.
struct Found {
    SkipSet set = {};
    double uniform = 0.0;  // matchness that the search began with
    double matchness = 0.0;
    double cost = 1.0;
    ExpectedGain gain = {};
};

Found search_share(const SearchOptions& options, SkipTrials& trials, int layers, double share) {
    // Without early stop: everything is measured on the same answers.
    SkipSearch search{{.layers = layers,
                       .ratio = share,
                       .keep_first = options.keep_first,
                       .keep_last = options.keep_last,
                       .bayes_every = 5,
                       .trials_max = options.trials,
                       .tolerance = options.trials,
                       .matchness_stop = 1.0,
                       .acceptance_min = 0.0,
                       .seed = options.seed}};
    double best = trials.matchness(search.best());
    Found found{.uniform = best};
    while (search.searching()) {
        const SkipSet trial = search.propose();
        const double matchness = trials.matchness(trial);
        search.judged(trial, matchness, best);
        best = std::max(best, matchness);
    }
    found.set = search.best();
    found.matchness = best;
    found.cost = trials.cost(found.set);
    found.gain = expected_gain(best, found.cost, options.gamma);
    return found;
}

void print_row(double share, const Found& found) {
    const int skipped = found.set.count();
    int attention = 0;
    for (int layer = 0; layer < found.set.layers(); ++layer)
        attention += found.set.skips(2 * layer) ? 1 : 0;
    std::printf("%5.0f %%  %10d  %10d  %8.3f  %8.3f  %6.2f  %6d  %8.2f\n", 100 * share, attention,
                skipped - attention, found.uniform, found.matchness, found.cost, found.gain.length,
                found.gain.speed_up);
    std::fflush(stdout);
}

std::string config_text(const Found& found, const SearchOptions& options) {
    return fmt::format(
        "# Draft & Verify with a set found by paceline search: {:.3f} of the tokens of "
        "{} answers predicted.\n\n[pipeline]\nname = \"draft-verify\"\n\n[[stage]]\n"
        "name = \"target\"\nrole = \"segment\"\n\n[self_draft]\nsource = \"skip\"\n"
        "skip = \"{}\"\ngamma = {}\nconfidence_min = 0.6\nthreshold_adapts = true\n",
        found.matchness, options.first, found.set.text(), std::max(found.gain.length, 1));
}

Status search(const SearchOptions& options, const Environment& environment) {
    std::optional<OutputFile> out;
    if (Status named = open_if_named(options.out, "--out", out); !named) return named;
    Result<OpenedModel> model = open_model(options.model, environment);
    if (!model) return model.error();
    const ModelFile& file = model.value().file;
    Result<std::vector<Prompt>> prompts = chosen_prompts(options.prompts_file, options.first);
    if (!prompts) return prompts.error();
    const Result<std::vector<std::vector<TokenId>>> ids =
        encode_prompts(prompts.value(), file, model.value().tokenizer);
    if (!ids) return ids.error();
    const int layers = file.config().layers;
    if (options.keep_first + options.keep_last >= layers) {
        return Error{Errc::BadArgument,
                     fmt::format("--keep-first {} and --keep-last {} leave nothing of {} layers",
                                 options.keep_first, options.keep_last, layers)};
    }
    const Result<Machine> machine = read_machine();
    if (!machine) return machine.error();
    const Device device = device_of(options.model);
    const CpuOptions cpu =
        cpu_options(options.model, plan_threads(machine.value(), options.model.threads),
                    SkipTrials::slots(ids.value(), options.measure), device);
    if (Status room =
            check_memory({plan_backend(file, cpu, "model", device)}, read_available_memory());
        !room) {
        return room;
    }
    print_rounded_types(kSearchCommand, file, options.model);
    Result<std::unique_ptr<Backend>> backend =
        load_backend(file, cpu, device, bars_on(environment));
    if (!backend) return backend.error();
    SkipTrials trials{*backend.value(), options.measure};
    if (Status ready = trials.prepare(ids.value(), model.value().tokenizer.end_tokens()); !ready)
        return ready;
    std::printf("%d answers, %d tokens, %d trials of each share\n\n",
                static_cast<int>(ids.value().size()), trials.compared(), options.trials);
    std::puts("skipped   attention         MLP   uniform     found    cost  length  speed-up");
    std::optional<Found> best;
    for (const int percent : parse_int_list(options.percents)) {
        const double share = percent / 100.0;
        const Found found = search_share(options, trials, layers, share);
        print_row(share, found);
        if (!best || found.gain.speed_up > best->gain.speed_up ||
            (found.gain.length == 0 && best->gain.length == 0 &&
             found.matchness > best->matchness)) {
            best = found;
        }
    }
    std::printf("\n%s\n\n", best->set.strip().c_str());
    if (best->gain.length == 0)
        std::puts("No draft of this model without some of its sub-layers is expected to pay.");
    std::printf("[self_draft]\nsource = \"skip\"\nskip = \"%s\"\n", best->set.text().c_str());
    if (out) return out->write(config_text(*best, options));
    return flush_stdout();
}

}  // namespace

Command add_search(Command& app, SearchOptions& options) {
    Command command = app.add_command(
        kSearchCommand, "Find the sub-layers that the model can skip when it drafts for itself");
    add_model_options(command, options.model);
    add_device_option(command, options.model);
    add_prompt_set_options(command, options.prompts_file, options.first, options.measure.tokens,
                           {.first_min = 1, .first_max = 1024, .tokens_max = 4096});
    command.add_option("--window", options.measure.window, "tokens drafted from one place",
                       whole_number(1, 32));
    command.add_option("--skip", options.percents, "shares of the sub-layers, in percent",
                       whole_number_list(1, 99));
    command.add_option("--trials", options.trials, "sets that are tried of each share",
                       whole_number(1, 100'000));
    command.add_option("--keep-first", options.keep_first, "first layers that are never skipped",
                       whole_number(0, 1024));
    command.add_option("--keep-last", options.keep_last, "last layers that are never skipped",
                       whole_number(0, 1024));
    command.add_option("--gamma", options.gamma, "longest chain that is considered",
                       whole_number(1, 32));
    command.add_option("--search-seed", options.seed, "the sets that are tried depend on it")
        .show_default();
    command.add_option("--out", options.out, "write a configuration with the set that was found");
    command.footer(
        "Measures which share of the model's own greedy answers it predicts without some of its\n"
        "sub-layers, and prints for each share the best set found: matchness, cost of a drafted\n"
        "token in target passes, and the expected speed-up at the best chain length. Example:\n"
        "  paceline search --first 4 --trials 50 --out mine.toml\n"
        "  paceline run --config mine.toml -p \"Why is the sky blue?\"");
    return command;
}

int run_search(const SearchOptions& options, const Environment& environment) {
    const Status done = search(options, environment);
    return done.ok() ? kExitOk : report(kSearchCommand, done.error());
}

}  // namespace paceline
