// paceline_skip_sets: which sub-layers a model does without, studied on texts that it decodes
// greedily.
//
//     paceline_skip_sets programme -m MODEL --prompts FILE --skipped 3,5,8
//     paceline_skip_sets uniform   -m MODEL --prompts FILE
//     paceline_skip_sets search    -m MODEL --prompts FILE --ratio 0.2 --window 32
#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "launch/load/prompt_sets.hpp"
#include "model/cpu/cpu_backend.hpp"
#include "model/kv_layout.hpp"
#include "model/tokenizer/tokenizer.hpp"
#include "model/weights/model_file.hpp"

#include "bench/skip_sets/studies.hpp"

namespace paceline::skip_sets {
namespace {

constexpr int kScratch = 128;  // the widest window, the sets of one call, the rows of a programme

struct Arguments {
    std::string model;
    std::string prompts;
    int first = 0;
    int count = 96;
    int threads = 1;
    int keep_first = 1;
    int keep_last = 1;
    ProgrammeStudy programme;
    UniformStudy uniform;
    SearchStudy search;
};

enum class Study { Programme, Uniform, Search };

Status run(const Arguments& arguments, Study study) {
    const Result<ModelFile> file = ModelFile::open(arguments.model);
    if (!file) return file.error();
    const Result<Tokenizer> tokenizer = Tokenizer::make(file.value().tokenizer());
    if (!tokenizer) return tokenizer.error();
    Result<std::vector<Prompt>> prompts = read_prompts(arguments.prompts);
    if (!prompts) return prompts.error();
    if (arguments.first > 0 && prompts.value().size() > static_cast<std::size_t>(arguments.first))
        prompts.value().resize(static_cast<std::size_t>(arguments.first));
    const Result<std::vector<std::vector<TokenId>>> encoded =
        encode_prompts(prompts.value(), file.value(), tokenizer.value());
    if (!encoded) return encoded.error();
    int longest = 0;
    for (const std::vector<TokenId>& each : encoded.value())
        longest = std::max(longest, static_cast<int>(each.size()));
    const int text_max = pages_for(longest + arguments.count) * kKvPageSlots;

    CpuOptions options;
    options.kv_slots = text_max + kScratch;
    options.threads = arguments.threads;
    options.usable_cores = arguments.threads;
    const Result<std::unique_ptr<CpuBackend>> backend = make_cpu_backend(file.value(), options);
    if (!backend) return backend.error();
    Backend& model = *backend.value();
    const StudyTask task{.backend = model,
                         .texts = encoded.value().size(),
                         .text_at =
                             [&](std::size_t i) {
                                 return DecodedText{model, encoded.value()[i], arguments.count,
                                                    tokenizer.value().end_tokens(), text_max};
                             },
                         .keep_first = arguments.keep_first,
                         .keep_last = arguments.keep_last};
    switch (study) {
        case Study::Programme:
            study_programme(task, arguments.programme);
            break;
        case Study::Uniform:
            study_uniform(task, arguments.uniform);
            break;
        case Study::Search:
            study_search(task, arguments.search);
            break;
    }
    return {};
}

void add_common(CLI::App& command, Arguments& arguments) {
    command.add_option("-m,--model", arguments.model, "GGUF file with a chat template")->required();
    command.add_option("--prompts", arguments.prompts, "a JSON object per line")->required();
    command.add_option("--first", arguments.first, "only so many of the prompts; 0: all");
    command.add_option("-n", arguments.count, "most tokens of an answer")
        ->check(CLI::Range(2, 4096))
        ->capture_default_str();
    command.add_option("-t,--threads", arguments.threads)
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    command.add_option("--keep-first", arguments.keep_first, "layers that are never skipped")
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
    command.add_option("--keep-last", arguments.keep_last)
        ->check(CLI::Range(0, 1024))
        ->capture_default_str();
}

int main_with(int argc, char** argv) {
    Arguments arguments;
    CLI::App app{"Studies which sub-layers a model does without."};
    app.require_subcommand(1);
    CLI::App* programme = app.add_subcommand("programme", "CLaSp's choice of layers");
    add_common(*programme, arguments);
    ProgrammeStudy& p = arguments.programme;
    programme->add_option("--skipped", p.skipped, "layers, one or several")->delimiter(',');
    programme->add_option("--every", p.every, "tokens between two programmes")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    programme->add_option("--random", p.random_sets)
        ->check(CLI::Range(0, kScratch - 2))
        ->capture_default_str();
    programme->add_option("--small-first", p.exhaustive_first)->capture_default_str();
    programme->add_option("--small-last", p.exhaustive_last)->capture_default_str();
    programme->add_option("--small-skip", p.exhaustive_skip, "0: no small problem")
        ->check(CLI::Range(0, 4))
        ->capture_default_str();
    CLI::App* uniform = app.add_subcommand("uniform", "sets that are evenly spread");
    add_common(*uniform, arguments);
    uniform->add_option("--ratios", arguments.uniform.ratios)->delimiter(',');
    CLI::App* search = app.add_subcommand("search", "SWIFT's search");
    add_common(*search, arguments);
    SearchStudy& s = arguments.search;
    search->add_option("--ratio", s.ratio)->check(CLI::Range(0.0, 1.0))->capture_default_str();
    search->add_option("--window", s.window)->check(CLI::Range(1, kScratch))->capture_default_str();
    search->add_option("--bayes-every", s.bayes_every)->capture_default_str();
    search->add_option("--trials", s.trials, "of each text")->capture_default_str();
    search->add_option("--seed", s.seed)->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    const Study study = programme->parsed() ? Study::Programme
                        : uniform->parsed() ? Study::Uniform
                                            : Study::Search;
    const Status status = run(arguments, study);
    if (!status) std::fprintf(stderr, "paceline_skip_sets: %s\n", status.error().what.c_str());
    return status ? 0 : 1;
}

}  // namespace
}  // namespace paceline::skip_sets

int main(int argc, char** argv) {
    return paceline::skip_sets::main_with(argc, argv);
}
