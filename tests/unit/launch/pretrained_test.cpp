// Trained parts in a configuration: which are found, what stands in, and that what was planned of
// them is what backends then take and say.
#include "launch/placement/pretrained.hpp"

#include <algorithm>

#include <doctest/doctest.h>

#include "launch/config/methods.hpp"
#include "launch/load/draft_backend.hpp"
#include "launch/load/exit_heads.hpp"
#include "launch/load/self_draft_plan.hpp"
#include "launch/placement/memory_plan.hpp"
#include "launch/placement/method_fit.hpp"
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

PipelineConfig config_of(const std::string& draft, const std::string& exit = "") {
    Result<PipelineConfig> config = parse_pipeline_config(
        "[[stage]]\nname = \"a\"\nrole = \"early-verify\"\n"
        "[[stage]]\nname = \"b\"\nrole = \"final-verify\"\n"
        "[[stage]]\nname = \"d\"\nrole = \"draft\"\n[draft]\nexit_alternatives = 1\n" +
            draft + "[exit]\n" + exit,
        "x.toml");
    if (!config.ok()) FAIL(config.error().what);
    return std::move(config).value();
}

ResolvedConfig resolved(PipelineConfig config, const PartsSearch& search, const ModelFile& target) {
    Result<ResolvedConfig> found = use_parts(std::move(config), search, target);
    if (!found.ok()) FAIL(found.error().what);
    return std::move(found).value();
}

std::string text_of(const ResolvedConfig& pipeline) {
    return parts_text(pipeline, place(pipeline.config, 2, {0}).value());
}

std::unique_ptr<CpuBackend> backend_of(const ModelFile& file, const CpuOptions& options) {
    Result<std::unique_ptr<CpuBackend>> made = make_cpu_backend(file, options);
    if (!made.ok()) FAIL(made.error().what);
    return std::move(made).value();
}

/// Logits after the second of two tokens.
std::vector<float> logits_of(CpuBackend& backend, HeadId head) {
    const std::vector<KvSlot> slots{0, 1};
    std::vector<Row> rows(2);
    for (std::int32_t i = 0; i < 2; ++i) {
        rows[static_cast<std::size_t>(i)] = {.token = 40 + i,
                                             .position = i,
                                             .slot = i,
                                             .prefix_slots = slots.data(),
                                             .prefix_count = i + 1,
                                             .last = 2 * backend.last_layer()};
    }
    const auto dim = static_cast<std::size_t>(backend.config().dim);
    std::vector<float> hidden(2 * dim);
    REQUIRE(backend.run_layers(rows, hidden, nullptr) == RunOutcome::Done);
    std::vector<float> logits(static_cast<std::size_t>(backend.config().vocab_size));
    backend.head(head, std::span{hidden}.subspan(dim), 1, logits);
    return logits;
}

}  // namespace

TEST_CASE("a trained draft has the size that was asked for, or the one that there is") {
    const TestFolder folder;
    const ModelFile target = open_fixture("tiny-chat");
    const PartsSearch search{.option = "", .folders = {"/nowhere", folder.path().string()}};
    const PipelineConfig small = config_of("source = \"trained\"\n");
    const PipelineConfig deep = config_of("source = \"prompt-lookup+trained\"\nsize = \"deep\"\n");
    CHECK(source_text(*resolved(small, search, target).config.draft) == "prompt-lookup");
    draft_of(target, kTokens).write(folder.path() / "draft-deep.safetensors");
    CHECK(contains(resolved(small, search, target).parts.files.draft, "draft-deep"));
    draft_of(target, kTokens).write(folder.path() / "draft-small.safetensors");
    const ResolvedConfig found = resolved(small, search, target);
    CHECK(contains(found.parts.files.draft, "draft-small"));
    CHECK(found.parts.draft_tokens == 5);
    CHECK(contains(text_of(found), "trained draft: 2 layers, a head of 5 tokens, "));
    CHECK(contains(resolved(deep, search, target).parts.files.draft, "draft-deep"));
    CHECK(source_text(*resolved(deep, search, target).config.draft) == "prompt-lookup+trained");
    const ResolvedConfig none =
        resolved(small, {.option = "none", .folders = search.folders}, target);
    CHECK(!none.config.draft->computes());
    CHECK(none.parts.draft_missing);
    CHECK(none.parts.files.draft.empty());
    CHECK(contains(resolved(small, {.option = folder.path().string(), .folders = {}}, target)
                       .parts.files.draft,
                   "draft-small"));
}

TEST_CASE("a configuration is the one of the file after its parts were found, but for a stand-in") {
    const TestFolder folder;
    const ModelFile target = open_fixture("tiny-chat");
    draft_of(target, kTokens).write(folder.path() / "draft-small.safetensors");
    heads_of(target, {1}, 1, kTokens).write(folder.path() / "heads.safetensors");
    const PartsSearch search{.option = "", .folders = {folder.path().string()}};
    const PipelineConfig written = config_of("source = \"trained\"\n", "ahead = 1\n");
    const ResolvedConfig found = resolved(written, search, target);
    CHECK(found.config.draft->model == DraftModelKind::Trained);
    CHECK(found.config.draft->model_file.empty());
    CHECK(found.config.exit->part.empty());
    CHECK(found.parts.files.heads == (folder.path() / "heads.safetensors").string());
    CHECK(found.parts.head_behind(1, ExitHead::Adapter) == ExitHead::Trained);
    CHECK(found.parts.head_behind(2, ExitHead::Adapter) == ExitHead::LogitLens);
    CHECK(found.parts.ahead_heads == 1);
    const std::string named = (folder.path() / "draft-small.safetensors").string();
    const PipelineConfig own = config_of("source = \"trained\"\npart = \"" + named + "\"\n");
    CHECK(resolved(own, {.option = "", .folders = {}}, target).parts.files.draft == named);
    CHECK(resolved(own, {.option = "none", .folders = {}}, target).parts.draft_missing);
}

TEST_CASE("every method resolves without parts to what stood in before, and can be set to it") {
    const ModelFile target = open_fixture("tiny-chat");
    const std::pair<const char*, const char*> cases[] = {
        {"speculative", "prompt-lookup"},
        {"speculative-tree", "first-layers"},
        {"pearl", "prompt-lookup"},
        {"fold", "prompt-lookup"},
        {"four-stages", "prompt-lookup"},
        {"hybrid", "prompt-lookup+first-layers"},
        {"prompt-lookup+draft", "prompt-lookup+first-layers"}};
    for (const auto& [method, source] : cases) {
        CAPTURE(method);
        const ResolvedConfig found = resolved(method_config(method).value(), {}, target);
        CHECK(source_text(*found.config.draft) == source);
        CHECK(
            contains(parts_text(found, place(found.config, 30, {0}).value()), "no trained draft"));
    }
    const PipelineConfig set =
        config_of("source = \"first-layers\"\nsize = \"deep\"\nlayers = 1\n");
    CHECK(contains(text_of(resolved(set, {}, target)), "the draft is the target's own first"));
}

TEST_CASE("an exit takes the adapter, the head or the logit lens, whichever its layer has first") {
    const TestFolder folder;
    const ModelFile target = open_fixture("tiny-chat");
    const PartsSearch search{.option = "", .folders = {folder.path().string()}};
    const auto behind = [&](const std::string& exit) {
        return text_of(resolved(config_of("", exit), search, target));
    };
    CHECK(contains(behind(""), "no trained exit for this model after layer 1"));
    heads_of(target, {2}, 2, kTokens).write(folder.path() / "heads.safetensors");
    CHECK(contains(behind("head = \"adapter\"\n"), "no trained exit"));
    heads_of(target, {1, 2}, 2, kTokens).write(folder.path() / "heads.safetensors");
    CHECK(contains(behind(""), "trained exit head: after layer 1, "));
    CHECK(contains(behind("head = \"adapter\"\n"), "trained exit head: after layer 1, "));
    adapter_of(target, 1, kTokens).write(folder.path() / "adapter.safetensors");
    CHECK(contains(behind("head = \"adapter\"\n"), "trained adapter: exit after layer 1, "));
    CHECK(contains(behind("head = \"logit-lens\"\n"), "logit lens"));
    CHECK(contains(behind("ahead = 3\n"), "no trained look-ahead heads for this model beyond 2"));
    const std::string adapter = (folder.path() / "adapter.safetensors").string();
    const PipelineConfig wrong = config_of("", "part = \"" + adapter + "\"\n");
    CHECK(contains(use_parts(wrong, search, target).error().what,
                   "is a part \"adapter\", wanted is \"heads\""));
}

TEST_CASE("exit heads are those of the part, and of the layer") {
    const TestFolder folder;
    const ModelFile target = open_fixture("tiny-chat");
    heads_of(target, {1}, 1, kTokens, 0.25F).write(folder.path() / "heads.safetensors");
    const ResolvedConfig found = resolved(
        config_of("", "ahead = 2\n"), {.option = folder.path().string(), .folders = {}}, target);
    const ExitConfig& settings = *found.config.exit;
    const ExitParts parts = open_exit_parts(settings, found.parts.files, target).value();
    const ExitPlace exit{.last_layer = 1, .at_exit = true};
    const ExitHeads first = exit_heads(settings, target.config(), parts, exit, {});
    REQUIRE(first.heads.size() == 1);
    CHECK(!first.final_head);
    CHECK(first.options->head == HeadId{1});
    CHECK(first.heads[0].transform[0] == 0.25F);
    CHECK(first.heads[0].tokens == kTokens);
    const ExitPlace last{.last_layer = 2, .last = true};
    const ExitHeads ahead = exit_heads(settings, target.config(), parts, last, {});
    REQUIRE(ahead.heads.size() == 2);
    CHECK(ahead.heads[0].transform[0] == 0.25F);
    CHECK(ahead.heads[1].tokens.empty());  // noise in the place of the second
    const ExitPlace other{.last_layer = 2, .at_exit = true};
    CHECK(exit_heads(settings, target.config(), parts, other, {}).final_head);
}

TEST_CASE("a draft part that is the target says of the listed tokens what the target says") {
    const TestFolder folder;
    std::string fixture = "tiny-chat";
    SUBCASE("stored as Q8_0") {}
    SUBCASE("stored as Q4_1") {
        fixture = "llama-q4_1";
    }
    SUBCASE("with a head of its own") {
        fixture = "llama-untied-f16";
    }
    CAPTURE(fixture);
    const ModelFile target = open_fixture(fixture);
    draft_of(target, kTokens).write(folder.path() / "draft-small.safetensors");
    const ResolvedConfig found =
        resolved(config_of("source = \"trained\"\n"),
                 {.option = folder.path().string(), .folders = {}}, target);
    CpuOptions options;
    options.kv_slots = 32;
    const auto whole = backend_of(target, options);
    const std::vector<float> wanted = logits_of(*whole, HeadId::Final);
    const DraftBackend plan =
        plan_draft_backend(*found.config.draft, found.parts.files, target, options).value();
    const auto draft = backend_of(plan.file(target), plan.options);
    const std::vector<float> said = logits_of(*draft, plan.head);
    REQUIRE(said.size() == wanted.size());
    for (TokenId token = 0; token < target.config().vocab_size; ++token) {
        CAPTURE(token);
        const auto at = static_cast<std::size_t>(token);
        const bool listed = std::find(kTokens.begin(), kTokens.end(), token) != kTokens.end();
        CHECK(said[at] == (listed ? wanted[at] : -std::numeric_limits<float>::infinity()));
    }
    const MemoryNeed need = plan_backend(plan.file(target), plan.options, "draft");
    CHECK(need.weight_bytes == draft->memory_use().weight_bytes);
    CHECK(need.kv_bytes == draft->memory_use().kv_bytes);
}

TEST_CASE("what is planned for a segment with an adapter is what it takes") {
    const TestFolder folder;
    const ModelFile target = open_fixture("tiny-chat");
    adapter_of(target, 1, kTokens).write(folder.path() / "adapter.safetensors");
    const ResolvedConfig found =
        resolved(config_of("", "head = \"adapter\"\n"),
                 {.option = folder.path().string(), .folders = {}}, target);
    const ExitConfig& settings = *found.config.exit;
    const ExitParts parts = open_exit_parts(settings, found.parts.files, target).value();
    const ExitPlace exit{.last_layer = 1, .at_exit = true};
    ExitHeads heads = exit_heads(settings, target.config(), parts, exit, {});
    CHECK(heads.options->head == HeadId::Adapter);
    CpuOptions options;
    options.kv_slots = 64;
    options.last_layer = 1;
    options.adapter = std::move(heads.adapter);
    REQUIRE(options.adapter.has_value());
    const MemoryNeed need = plan_backend(target, options, "a");
    const auto backend = backend_of(target, options);
    CHECK(backend->has_adapter());
    CHECK(need.weight_bytes == backend->memory_use().weight_bytes);
    CHECK(need.kv_bytes == backend->memory_use().kv_bytes);
}

TEST_CASE("a target that drafts for itself finds its adapter, says so, and has memory for it") {
    const TestFolder folder;
    const ModelFile target = open_fixture("tiny-chat");
    adapter_of(target, 1, kTokens).write(folder.path() / "adapter.safetensors");
    const auto use = [&](const std::string& option) {
        return resolved(method_config("kangaroo").value(), {.option = option, .folders = {}},
                        target);
    };
    const ResolvedConfig with = use(folder.path().string());
    CHECK(with.parts.files.adapter == folder.path() / "adapter.safetensors");
    CHECK(contains(text_of(with), "trained adapter: drafts after layer 1, "));
    const Placement placement = place(with.config, 2, {0}).value();
    CHECK(parts_use(with, placement) == PartsUse::Trained);

    const ResolvedConfig without = use(kNoParts);
    CHECK(without.parts.files.adapter.empty());
    CHECK(contains(text_of(without), "no trained adapter for this model"));
    CHECK(parts_use(without, placement) == PartsUse::StandIns);

    const auto kv_bytes = [&](const ResolvedConfig& pipeline) {
        CpuOptions options;
        options.kv_slots = 64;
        const SelfDraftPlan plan =
            plan_self_draft(*pipeline.config.self_draft, pipeline.parts.files, target).value();
        CHECK(plan.adapter.has_value() != pipeline.parts.files.adapter.empty());
        return plan_stages(target, options, placement, {}, {}, {}, KvType::BF16, plan)
            .front()
            .kv_bytes;
    };
    // Its attention is that of a layer: there are two.
    CHECK(2 * kv_bytes(with) == 3 * kv_bytes(without));
}
