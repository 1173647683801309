// From --logit-bias words and switches to SamplingParams.
#include "launch/load/sampling_options.hpp"

#include <limits>
#include <string>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/support/source_tree.hpp"
#include "tests/unit/huggingface/folder_copy.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file

namespace {

std::string bias_error(std::vector<std::string> words) {
    SamplingOptions options;
    options.bias_words = std::move(words);
    Result<SamplingParams> params = sampling_params(options, 100);
    return params.ok() ? std::string{} : params.error().what;
}

}  // namespace

TEST_CASE("biases are sorted by token, and -inf bans one") {
    SamplingOptions options;
    options.bias_words = {"42=-5", "7=-inf", "0=1.5"};
    Result<SamplingParams> params = sampling_params(options, 100);
    REQUIRE(params.ok());
    const auto& bias = params.value().logit_bias;
    REQUIRE(bias.size() == 3);
    CHECK(bias[0] == std::pair<TokenId, float>{0, 1.5f});
    CHECK(bias[1] == std::pair<TokenId, float>{7, -std::numeric_limits<float>::infinity()});
    CHECK(bias[2] == std::pair<TokenId, float>{42, -5.0f});
}

TEST_CASE("a bias that makes no sense is refused with its text") {
    CHECK(bias_error({"42"}) == "--logit-bias: '42' is not ID=VALUE, such as 42=-5 or 42=-inf");
    CHECK(bias_error({"100=1"}) == "--logit-bias: '100=1' names no token id from 0 to 99");
    CHECK(bias_error({"-1=1"}) == "--logit-bias: '-1=1' names no token id from 0 to 99");
    CHECK(bias_error({"5=x"}) == "--logit-bias: '5=x' has no number or -inf after '='");
    CHECK(bias_error({"5=nan"}) == "--logit-bias: '5=nan' has no number or -inf after '='");
    CHECK(bias_error({"5=inf"}) == "--logit-bias: '5=inf' has no number or -inf after '='");
    CHECK(bias_error({"5=1", "5=2"}) == "--logit-bias: token 5 is given twice");
}

TEST_CASE("options that greedy decoding ignores are named") {
    SamplingOptions options;
    CHECK(idle_sampling_options(options).empty());
    options.params.top_p = 0.9f;
    options.params.seed = 3;
    CHECK(idle_sampling_options(options).find("--top-p --seed") != std::string::npos);
    options.generation_config = true;  // may bring a temperature
    CHECK(idle_sampling_options(options).empty());
    options.generation_config = false;
    options.params.temperature = 0.5f;
    CHECK(idle_sampling_options(options).empty());
}

TEST_CASE("--generation-config draws as the model's folder says, but for options that are given") {
    const std::string models = testing::fixtures();
    const Result<ModelFile> folder = ModelFile::open(models + "/folders/llama3-bf16");
    const Result<ModelFile> gguf = ModelFile::open(models + "/models/llama-f32.gguf");
    REQUIRE(folder.ok());
    REQUIRE(gguf.ok());
    SamplingOptions options;
    options.params.top_p = 0.5f;
    options.given.top_p = true;
    CHECK(with_generation_config(options, folder.value()).value().params.greedy());
    options.generation_config = true;
    const SamplingParams drawn = with_generation_config(options, folder.value()).value().params;
    CHECK(drawn.temperature == 0.6f);
    CHECK(drawn.top_k == 20);
    CHECK(drawn.top_p == 0.5f);
    CHECK(with_generation_config(options, gguf.value()).error().code == Errc::BadArgument);
}

TEST_CASE("a repetition penalty of the folder counts the whole text, unless a window is given") {
    const testing::FolderCopy copy("llama3-bf16");
    copy.patch("generation_config.json", {{"repetition_penalty", 5.0}});
    const ModelFile folder = copy.opened();
    SamplingOptions options;
    options.generation_config = true;
    const auto drawn = [&] { return with_generation_config(options, folder).value().params; };
    CHECK(drawn().repetition_penalty == 5.0f);
    CHECK(drawn().penalty_window == -1);
    options.given.penalty_window = true;
    CHECK(drawn().penalty_window == 64);
    options.given = {.repetition_penalty = true};
    CHECK(drawn().repetition_penalty == 1.0f);
    CHECK(drawn().penalty_window == 64);
    options.given = {};
    copy.patch("generation_config.json", {{"repetition_penalty", 1.0}});  // none at all
    options.given = {};
    CHECK(with_generation_config(options, copy.opened()).value().params.penalty_window == 64);
    copy.patch("generation_config.json", {{"repetition_penalty", nullptr}});
    CHECK(with_generation_config(options, copy.opened()).value().params.penalty_window == 64);
}

TEST_CASE("keys that change the text in transformers alone are named, those that are off are not") {
    const testing::FolderCopy copy("llama3-bf16");
    SamplingOptions options;
    options.generation_config = true;
    const auto remark = [&](const nlohmann::json& patch, bool greedy) {
        copy.patch("generation_config.json", patch);
        const SamplingParams drawn{.temperature = greedy ? 0.0f : 1.0f};
        return generation_config_remark(options, drawn, copy.opened());
    };
    CHECK(remark(nlohmann::json::object(), true).empty());
    const nlohmann::json off{
        {"no_repeat_ngram_size", 0}, {"num_beams", 1},
        {"guidance_scale", 1},       {"typical_p", 1.0},
        {"eta_cutoff", 0},           {"suppress_tokens", nlohmann::json::array()},
        {"token_healing", false},    {"min_length", 0},
        {"early_stopping", true},    {"length_penalty", 2.0},
        {"use_cache", false}};
    CHECK(remark(off, false).empty());
    const nlohmann::json on{
        {"no_repeat_ngram_size", 3}, {"guidance_scale", 0.5},        {"eta_cutoff", 0.1},
        {"suppress_tokens", {1}},    {"begin_suppress_tokens", {1}}, {"num_beams", 4},
        {"token_healing", true},     {"stop_strings", "x"}};
    const std::string same =
        "guidance_scale, no_repeat_ngram_size, suppress_tokens, begin_suppress_tokens, ";
    CHECK(remark(on, true).find("has " + same + "num_beams, token_healing, stop_strings:") !=
          std::string::npos);
    CHECK(remark(on, false).find("has " + same + "eta_cutoff, num_beams") != std::string::npos);
    options.generation_config = false;
    CHECK(remark(on, true).empty());
}
