// From --logit-bias words and switches to SamplingParams.
#include "launch/load/sampling_options.hpp"

#include <limits>
#include <string>

#include <doctest/doctest.h>

#include "tests/support/source_tree.hpp"

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
    CHECK(with_generation_config(options, folder.value()).value().params.greedy());
    options.generation_config = true;
    const SamplingParams drawn = with_generation_config(options, folder.value()).value().params;
    CHECK(drawn.temperature == 0.6f);
    CHECK(drawn.top_k == 20);
    CHECK(drawn.top_p == 0.5f);
    CHECK(with_generation_config(options, gguf.value()).error().code == Errc::BadArgument);
}
