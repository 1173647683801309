// paceline_parity: how far a backend is from transformers, and what a narrow dtype costs.
//
//     paceline_parity logits -m MODEL --golden STEM         against smollm2_parity.py's logits
//     paceline_parity perplexity -m MODEL --dtype f32,bf16  on a text, relative to the first
//     paceline_parity pair -m MODEL --backend cuda          against the CPU backend, on a text
#include <algorithm>
#include <cstdio>
#include <fmt/core.h>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "model/tokenizer/tokenizer.hpp"
#include "model/weights/lora.hpp"
#include "model/weights/model_file.hpp"
#include "tests/support/parity.hpp"

#include "bench/parity/backend_choice.hpp"
#include "bench/parity/backend_pair.hpp"
#include "bench/parity/perplexity.hpp"

namespace paceline::parity {
namespace {

struct Arguments {
    std::string model;
    std::string lora;  // a part to merge; empty: none
    std::string golden;
    std::string text = "/usr/share/common-licenses/GPL-3";  // part of every Debian system
    std::vector<std::string> dtypes{"f32"};
    BackendChoice choice;
    int batch_rows = 64;
    int window = 512;
    int tokens = 512;  // of a pair
    double tolerance = 1e-4;
    double pair_tolerance = 1e-3;
};

/// Prints one line; the status says whether the error is inside the tolerance.
Status compare_logits(const Arguments& arguments, const ModelFile& file, const std::string& dtype) {
    const Result<testing::Golden> golden = testing::read_golden(arguments.golden);
    if (!golden) return golden.error();
    const testing::Golden& wanted = golden.value();
    if (wanted.vocab_size != file.config().vocab_size) {
        return Error{Errc::BadFile,
                     fmt::format("{}: vocab_size is {}, the model's is {}", arguments.golden,
                                 wanted.vocab_size, file.config().vocab_size)};
    }
    BackendChoice choice = arguments.choice;
    choice.dtype = dtype;
    Result<std::unique_ptr<Backend>> backend =
        make_backend(file, choice, static_cast<int>(wanted.tokens.size()));
    if (!backend) return backend.error();
    const std::vector<float> logits =
        testing::sequence_logits(*backend.value(), wanted.tokens, arguments.batch_rows);
    const testing::Deviation worst = testing::deviation(logits, wanted.logits, wanted.vocab_size);
    const std::vector<TokenId> winners = testing::argmax_of_rows(logits, wanted.vocab_size);
    std::size_t agreeing = 0;
    for (std::size_t i = 0; i < winners.size(); ++i) agreeing += winners[i] == wanted.argmax[i];
    std::printf(
        "%-9s %-4s largest relative error %.3e (row %d, token %d), argmax agrees in %zu of %zu "
        "rows\n",
        choice.backend.c_str(), dtype.c_str(), worst.relative, worst.row, worst.column, agreeing,
        winners.size());
    if (worst.relative > arguments.tolerance) {
        return Error{
            Errc::BadArgument,
            fmt::format("the largest relative error exceeds --tolerance {}", arguments.tolerance)};
    }
    return {};
}

Result<std::vector<TokenId>> tokens_of_text(const Arguments& arguments, const ModelFile& file) {
    std::ifstream stream(arguments.text, std::ios::binary);
    if (!stream) return Error{Errc::BadFile, arguments.text + " cannot be read (--text)"};
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    const Result<Tokenizer> tokenizer = Tokenizer::make(file.tokenizer());
    if (!tokenizer) return tokenizer.error();
    std::vector<TokenId> tokens = tokenizer.value().encode(text, SpecialTokens::AsText);
    if (tokens.size() < 2) {
        return Error{Errc::BadFile, arguments.text + " is too short: two tokens are needed"};
    }
    return tokens;
}

/// Prints one line. `baseline` is the first dtype's, and is set by it.
Status measure_perplexity(const Arguments& arguments,
                          const ModelFile& file,
                          const std::string& dtype,
                          std::optional<Perplexity>& baseline) {
    const Result<std::vector<TokenId>> tokens = tokens_of_text(arguments, file);
    if (!tokens) return tokens.error();
    BackendChoice choice = arguments.choice;
    choice.dtype = dtype;
    Result<std::unique_ptr<Backend>> backend = make_backend(file, choice, arguments.window);
    if (!backend) return backend.error();
    const Perplexity result =
        perplexity(*backend.value(), tokens.value(), arguments.window, arguments.batch_rows);
    if (!baseline) baseline = result;
    const PerplexityRatio over = compare(result, *baseline);
    std::printf(
        "%-9s %-4s kv %-4s perplexity %.6f over %zu tokens, %+.4f +- %.4f %% of the first\n",
        choice.backend.c_str(), dtype.c_str(), choice.kv.c_str(), result.value(),
        result.losses.size(), 100.0 * over.more, 100.0 * over.error);
    return {};
}

/// Prints one line; the status says whether both backends say the same.
Status compare_pair(const Arguments& arguments, const ModelFile& file, const std::string& dtype) {
    Result<std::vector<TokenId>> text = tokens_of_text(arguments, file);
    if (!text) return text.error();
    std::vector<TokenId> tokens = std::move(text).value();
    tokens.resize(std::min(tokens.size(), static_cast<std::size_t>(arguments.tokens)));
    BackendChoice choice = arguments.choice;
    choice.dtype = dtype;
    BackendChoice cpu = choice;
    cpu.backend = "cpu";
    Result<std::unique_ptr<Backend>> got = make_backend(file, choice, arguments.tokens);
    if (!got) return got.error();
    Result<std::unique_ptr<Backend>> want = make_backend(file, cpu, arguments.tokens);
    if (!want) return want.error();
    const PairResult pair = compare(*got.value(), *want.value(), tokens, arguments.batch_rows,
                                    arguments.pair_tolerance);
    std::printf(
        "%-9s %-4s largest relative error to the CPU %.3e (row %d, token %d), greedy ids differ in "
        "%d of %d rows, the widest tie %.3e\n",
        choice.backend.c_str(), dtype.c_str(), pair.worst.relative, pair.worst.row,
        pair.worst.column, pair.differing, pair.rows, pair.widest_tie);
    if (pair.worst.relative > arguments.pair_tolerance || pair.first_beyond_tie >= 0) {
        return Error{Errc::BadArgument,
                     fmt::format("the backends are further apart than --tolerance {}",
                                 arguments.pair_tolerance)};
    }
    return {};
}

enum class Measure { Logits, Perplexity, Pair };

Status run(const Arguments& arguments, Measure measure) {
    Result<ModelFile> file = ModelFile::open(arguments.model);
    if (file && !arguments.lora.empty()) file = merge_lora(std::move(file).value(), arguments.lora);
    if (!file) return file.error();
    std::optional<Perplexity> baseline;
    for (const std::string& dtype : arguments.dtypes) {
        Status status;
        switch (measure) {
            case Measure::Logits:
                status = compare_logits(arguments, file.value(), dtype);
                break;
            case Measure::Perplexity:
                status = measure_perplexity(arguments, file.value(), dtype, baseline);
                break;
            case Measure::Pair:
                status = compare_pair(arguments, file.value(), dtype);
                break;
        }
        if (!status) return status;
        std::fflush(stdout);
    }
    return {};
}

void add_common(CLI::App& command, Arguments& arguments) {
    command.add_option("-m,--model", arguments.model, "GGUF file")->required();
    command.add_option("--lora", arguments.lora, "a LoRA part, merged into the weights");
    command.add_option("--backend", arguments.choice.backend, "cpu, cuda or reference (slow)")
        ->capture_default_str();
    command
        .add_option("--dtype", arguments.dtypes, "of the weights, one or several: f32,bf16,int8,q4")
        ->delimiter(',')
        ->capture_default_str();
    command.add_option("--kv", arguments.choice.kv, "of the KV cache: f32, f16 or bf16")
        ->capture_default_str();
    command.add_option("-t,--threads", arguments.choice.threads)
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    command.add_option("--rows", arguments.batch_rows, "rows per call")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
}

int main_with(int argc, char** argv) {
    Arguments arguments;
    CLI::App app{"Compares Paceline's numbers with those of transformers."};
    app.require_subcommand(1);
    CLI::App* logits = app.add_subcommand("logits", "error of the logits of a golden sequence");
    add_common(*logits, arguments);
    logits->add_option("--golden", arguments.golden, "stem of .golden.json and .golden.f32")
        ->required();
    logits
        ->add_option("--tolerance", arguments.tolerance, "of the relative error; exit code 1 above")
        ->capture_default_str();
    CLI::App* measure = app.add_subcommand("perplexity", "of a text, for each dtype");
    add_common(*measure, arguments);
    measure->add_option("--text", arguments.text)->capture_default_str();
    measure->add_option("--window", arguments.window, "tokens per window")
        ->check(CLI::Range(2, 1 << 20))
        ->capture_default_str();
    CLI::App* pair = app.add_subcommand("pair", "--backend against the CPU, on a text");
    add_common(*pair, arguments);
    pair->add_option("--text", arguments.text)->capture_default_str();
    pair->add_option("--tokens", arguments.tokens, "of the text")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    pair->add_option("--tolerance", arguments.pair_tolerance,
                     "of the relative error, and of a tie; exit code 1 above")
        ->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    const Measure what = logits->parsed() ? Measure::Logits
                         : pair->parsed() ? Measure::Pair
                                          : Measure::Perplexity;
    const Status status = run(arguments, what);
    if (!status) std::fprintf(stderr, "paceline_parity: %s\n", status.error().what.c_str());
    return status ? 0 : 1;
}

}  // namespace
}  // namespace paceline::parity

int main(int argc, char** argv) {
    return paceline::parity::main_with(argc, argv);
}
