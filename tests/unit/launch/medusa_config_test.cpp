// Residual look-ahead heads in a configuration: their part, its tree, what stands in, what is
// refused.
#include <algorithm>
#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "launch/config/methods.hpp"
#include "launch/load/exit_heads.hpp"
#include "launch/placement/pretrained.hpp"
#include "model/cpu/cpu_backend.hpp"
#include "tests/support/contains.hpp"
#include "tests/support/fixture_model.hpp"
#include "tests/unit/weights/safetensors_builder.hpp"

using namespace paceline;        // NOLINT(google-build-using-namespace): a test file
using namespace paceline::test;  // NOLINT(google-build-using-namespace): test helpers
using paceline::testing::contains;
using paceline::testing::open_fixture;

namespace {

const std::vector<TokenId> kTokens{0, 3, 4, 200, 319};
constexpr ExitPlace kLast{.last_layer = 2, .last = true};

Result<ResolvedConfig> resolved(const PipelineConfig& config,
                                const TestFolder& folder,
                                const ModelFile& target) {
    return use_parts(config, {.option = "", .folders = {folder.path().string()}}, target);
}

PipelineConfig config_of(const std::string& exit) {
    Result<PipelineConfig> config = parse_pipeline_config(
        "[[stage]]\nname = \"t\"\nrole = \"segment\"\n[exit]\n" + exit, "x.toml");
    if (!config.ok()) FAIL(config.error().what);
    return std::move(config).value();
}

std::string refusal(const std::string& text) {
    const Result<PipelineConfig> config =
        parse_pipeline_config("[[stage]]\nname = \"t\"\nrole = \"segment\"\n" + text, "x.toml");
    return config.ok() ? std::string{} : config.error().what;
}

ExitHeads heads_at_end(const ResolvedConfig& found, const ModelFile& target) {
    const ExitConfig& exit = *found.config.exit;
    const ExitParts parts = open_exit_parts(exit, found.parts.files, target).value();
    return exit_heads(exit, target.config(), parts, kLast, {});
}

std::string text_of(const ResolvedConfig& pipeline) {
    return parts_text(pipeline, place(pipeline.config, 2, {0}).value());
}

}  // namespace

TEST_CASE("the method medusa has the heads and the tree of its part") {
    const TestFolder folder;
    const ModelFile target = open_fixture("tiny-chat");
    heads_of(target, {}, 3, kTokens, 0.25F).write(folder.path() / "heads.safetensors");
    medusa_of(target, 5, kTokens, "0 1 0.0 0.1 0.0.0 0.0.0.0 0.0.0.0.2")
        .write(folder.path() / "medusa.safetensors");
    const ResolvedConfig found = resolved(method_config("medusa").value(), folder, target).value();
    CHECK(contains(text_of(found), "trained look-ahead heads: 5 with a tree of 7, "));
    CHECK(contains(text_of(found), "medusa.safetensors"));
    const ExitHeads heads = heads_at_end(found, target);
    REQUIRE(heads.heads.size() == 5);
    for (const HeadSpec& head : heads.heads) {
        CHECK(head.block == HeadBlock::Residual);
        CHECK(head.transform[0] == 0.5F);
        CHECK(head.tokens == kTokens);
    }
    CHECK(heads.options->ahead_tree ==
          std::vector<AheadNode>{{-1, 0}, {-1, 1}, {0, 0}, {0, 1}, {2, 0}, {4, 0}, {5, 2}});
    CHECK(validate(*heads.options).ok());
    // Two heads of the same part: the tree ends with them.
    const ExitHeads two = heads_at_end(
        resolved(config_of("ahead = 2\nahead_block = \"residual\"\nahead_tree = \"fixed\"\n"),
                 folder, target)
            .value(),
        target);
    CHECK(two.heads.size() == 2);
    CHECK(two.options->ahead_tree == std::vector<AheadNode>{{-1, 0}, {-1, 1}, {0, 0}, {0, 1}});
    const ExitHeads product = heads_at_end(
        resolved(config_of("ahead = 2\nahead_block = \"residual\"\n"), folder, target).value(),
        target);
    CHECK(product.options->ahead_tree.empty());
    CHECK(product.heads[1].block == HeadBlock::Residual);
    // The part has fewer heads than are asked for: the tree has no node of the others.
    medusa_of(target, 3, kTokens, "0 0.0 0.0.0").write(folder.path() / "medusa.safetensors");
    const ResolvedConfig three = resolved(method_config("medusa").value(), folder, target).value();
    CHECK(heads_at_end(three, target).heads.size() == 3);
    CHECK(!contains(text_of(three), "random"));
    // The method with the other heads has its own.
    const ExitHeads plain =
        heads_at_end(resolved(method_config("heads").value(), folder, target).value(), target);
    CHECK(plain.heads[0].block == HeadBlock::Linear);
    CHECK(plain.heads[0].transform[0] == 0.25F);
}

TEST_CASE("without a part of residual heads stand_in looks ahead, and is named") {
    const TestFolder folder;
    const ModelFile target = open_fixture("tiny-chat");
    const auto medusa = [&](const std::string& more) {
        const ConfigSource own{"extends = \"medusa\"\n[exit]\n" + more, "x.toml"};
        return resolved(parse_pipeline_config(own).value(), folder, target).value();
    };
    const ResolvedConfig noise = medusa("");
    CHECK(noise.parts.ahead_missing);
    CHECK(contains(text_of(noise), "no trained residual look-ahead heads for this model"));
    CHECK(contains(text_of(noise), "random ones"));
    CHECK(heads_at_end(noise, target).options->ahead_tree.empty());
    heads_of(target, {}, 3, kTokens, 0.25F).write(folder.path() / "heads.safetensors");
    const ResolvedConfig other = medusa("");
    CHECK(other.config.exit->ahead_block == AheadBlock::Transform);
    CHECK(contains(text_of(other), "trained look-ahead heads: 3, "));
    const ExitHeads heads = heads_at_end(other, target);
    REQUIRE(heads.heads.size() == 5);
    CHECK(heads.heads[0].block == HeadBlock::Linear);
    CHECK(heads.heads[0].transform[0] == 0.25F);
    const ExitHeads random = heads_at_end(medusa("stand_in = \"random\"\n"), target);
    CHECK(random.heads[0].transform[0] != 0.25F);
    CHECK(random.heads[0].tokens.empty());
}

TEST_CASE(
    "a part of other look-ahead heads, or without a tree, is refused by file, key and value") {
    const TestFolder folder;
    const ModelFile target = open_fixture("tiny-chat");
    const std::string file = (folder.path() / "medusa.safetensors").string();
    const auto said = [&](const std::string& method) {
        const auto found = resolved(method_config(method).value(), folder, target);
        return found.ok() ? std::string{} : found.error().what;
    };
    heads_of(target, {}, 3, kTokens).write(file);
    CHECK(contains(said("medusa"), file + ": metadata \"ahead_block\" is \"transform\""));
    medusa_of(target, 3, kTokens, "").write(file);
    CHECK(contains(said("medusa"), file + ": has no metadata \"ahead_tree\""));
    medusa_of(target, 0, kTokens, "").write(file);
    CHECK(contains(said("medusa"), file + ": has no tensor \"ahead.1.transform\""));
    medusa_of(target, 3, kTokens, "0").write(folder.path() / "heads.safetensors");
    CHECK(contains(said("heads"), "metadata \"ahead_block\" is \"residual\""));
}

TEST_CASE("a residual part on the CPU backend says E (n + SiLU(W n)), counted out in double") {
    const TestFolder folder;
    const ModelFile target = open_fixture("tiny-chat");
    medusa_of(target, 1, kTokens, "0").write(folder.path() / "medusa.safetensors");
    ResolvedConfig found = resolved(method_config("medusa").value(), folder, target).value();
    found.config.exit->ahead = 1;
    CpuOptions options;
    options.dtype = Dtype::F32;
    options.kv_slots = 32;
    options.heads = heads_at_end(found, target).heads;
    options.final_head = true;
    // E norm(h) is the final head's, so E n is known; with W = 0.5 n is scaled by 1 + f(n) alone.
    auto backend = make_cpu_backend(target, options);
    REQUIRE(backend.ok());
    const auto dim = static_cast<std::size_t>(target.config().dim);
    const auto vocab = static_cast<std::size_t>(target.config().vocab_size);
    std::vector<float> hidden(dim);
    for (std::size_t i = 0; i < dim; ++i) hidden[i] = std::sin(2.0F * static_cast<float>(i + 1));
    std::vector<float> norm(dim);
    dequantize_row(target.output_norm(), 0, std::span{norm});
    double squares = 0.0;
    for (const float h : hidden) squares += static_cast<double>(h) * static_cast<double>(h);
    const double rms = std::sqrt(squares / static_cast<double>(dim) +
                                 static_cast<double>(target.config().norm_epsilon));
    std::vector<float> got(vocab);
    backend.value()->head(HeadId{1}, hidden, 1, got);
    std::vector<float> row(dim);
    for (std::size_t token = 0; token < vocab; ++token) {
        if (!std::binary_search(kTokens.begin(), kTokens.end(), static_cast<TokenId>(token))) {
            CHECK(got[token] == -std::numeric_limits<float>::infinity());
            continue;
        }
        dequantize_row(target.output_head(), static_cast<std::int64_t>(token), std::span{row});
        double want = 0.0;
        for (std::size_t i = 0; i < dim; ++i) {
            const double n = static_cast<double>(hidden[i]) / rms * static_cast<double>(norm[i]);
            const double y = 0.5 * n;
            want += static_cast<double>(row[i]) * (n + y / (1.0 + std::exp(-y)));
        }
        CHECK(static_cast<double>(got[token]) == doctest::Approx(want).epsilon(1e-4));
    }
}

TEST_CASE("settings of look-ahead heads that contradict each other are refused") {
    CHECK(contains(refusal("[exit]\nahead_block = \"residual\"\n"), "ahead_block"));
    CHECK(contains(refusal("[exit]\nahead = 2\nahead_block = \"gated\"\n"), "is not allowed"));
    CHECK(contains(refusal("[exit]\nahead = 2\nahead_block = \"random\"\nahead_tree = "
                           "\"fixed\"\n"),
                   "random heads have none"));
}

TEST_CASE("typical acceptance, FREE and LITE are refused as what changes the text") {
    const std::string rule = refusal("[acceptance]\nrule = \"typical\"\n");
    CHECK(contains(rule, "x.toml:"));
    CHECK(contains(rule, "typical"));
    CHECK(contains(rule, "is not offered: typical acceptance changes the text"));
    const Result<PipelineConfig> bare = parse_pipeline_config(
        "acceptance = \"typical\"\n"
        "[[stage]]\nname = \"t\"\nrole = \"segment\"\n",
        "x.toml");
    REQUIRE(!bare.ok());
    CHECK(contains(bare.error().what, "is not offered: typical acceptance changes the text"));
    for (const char* name : {"free", "lite"}) {
        const Result<PipelineConfig> method = method_config(name);
        REQUIRE(!method.ok());
        CHECK(contains(method.error().what, name));
        CHECK(contains(method.error().what, "is not offered"));
        CHECK(contains(method.error().what, "the text changes"));
        const std::string extended = "extends = \"" + std::string{name} + "\"\n";
        CHECK(contains(parse_pipeline_config(extended, "x.toml").error().what, "is not offered"));
    }
    CHECK(contains(method_config("eesd").error().what, "is not a method"));
}
