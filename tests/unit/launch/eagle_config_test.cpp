// [draft] source = "eagle": the part that it needs, its stand-in, what is refused, where it
// computes and what is planned for it.
#include <string>

#include <doctest/doctest.h>

#include "launch/config/methods.hpp"
#include "launch/load/draft_backend.hpp"
#include "launch/load/make_backend.hpp"
#include "launch/placement/memory_plan.hpp"
#include "launch/placement/method_fit.hpp"
#include "launch/placement/pipeline_layout.hpp"
#include "launch/placement/pretrained.hpp"
#include "model/feature_slots.hpp"
#include "tests/support/contains.hpp"
#include "tests/support/fixture_model.hpp"
#include "tests/unit/weights/safetensors_builder.hpp"

using namespace paceline;        // NOLINT(google-build-using-namespace): a test file
using namespace paceline::test;  // NOLINT(google-build-using-namespace): test helpers
using paceline::testing::contains;
using paceline::testing::open_fixture;

namespace {

const std::vector<TokenId> kTokens{0, 3, 4, 200, 319};

Result<PipelineConfig> parsed(const std::string& draft) {
    return parse_pipeline_config(
        "[[stage]]\nname = \"d\"\nrole = \"draft\"\n"
        "[[stage]]\nname = \"t\"\nrole = \"segment\"\n[draft]\n" +
            draft,
        "x.toml");
}

PipelineConfig config_of(const std::string& draft) {
    Result<PipelineConfig> config = parsed(draft);
    if (!config.ok()) FAIL(config.error().what);
    return std::move(config).value();
}

std::string refusal(const std::string& draft) {
    const Result<PipelineConfig> config = parsed(draft);
    REQUIRE(!config.ok());
    CHECK(contains(config.error().what, "x.toml"));
    return config.error().what;
}

}  // namespace

TEST_CASE("an EAGLE draft without its part is refused unless a stand-in is named") {
    const ModelFile target = open_fixture("tiny-chat");
    const Result<ResolvedConfig> none = use_parts(config_of("source = \"eagle\"\n"), {}, target);
    REQUIRE(!none.ok());
    CHECK(contains(none.error().what, "x.toml: [draft] source = \"eagle\""));
    CHECK(contains(none.error().what, "eagle.safetensors"));
    const Result<ResolvedConfig> instead = use_parts(
        config_of("source = \"prompt-lookup+eagle\"\nstand_in = \"first-layers\"\n"), {}, target);
    if (!instead.ok()) FAIL(instead.error().what);
    CHECK(source_text(*instead.value().config.draft) == "first-layers");
    CHECK(instead.value().parts.draft_missing);
    for (const char* method : {"eagle2", "pearl-eagle", "fold-eagle"}) {
        CAPTURE(method);
        const Result<ResolvedConfig> found = use_parts(method_config(method).value(), {}, target);
        if (!found.ok()) FAIL(found.error().what);
        CHECK(found.value().parts.draft_missing);
        const bool tree = found.value().config.draft->growth.by_levels();
        CHECK(tree == (std::string{method} == "eagle2"));
    }
}

TEST_CASE("an EAGLE draft's part is found, named, and refused if it is another one") {
    const TestFolder folder;
    const ModelFile target = open_fixture("tiny-chat");
    eagle_of(target, kTokens).write(folder.path() / "eagle.safetensors");
    const PartsSearch search{.option = folder.path().string(), .folders = {}};
    const ResolvedConfig found = use_parts(method_config("eagle2").value(), search, target).value();
    CHECK(found.parts.files.draft == (folder.path() / "eagle.safetensors").string());
    CHECK(!found.parts.draft_missing);
    CHECK(found.parts.draft_tokens == 5);
    const Placement placed = place(found.config, 2, {0}).value();
    CHECK(contains(parts_text(found, placed), "EAGLE draft: one layer"));
    CHECK(parts_use(found, placed) == PartsUse::Trained);
    draft_of(target, kTokens).write(folder.path() / "other.safetensors");
    const std::string other = (folder.path() / "other.safetensors").string();
    const Result<ResolvedConfig> wrong =
        use_parts(config_of("source = \"eagle\"\npart = \"" + other + "\"\n"), {}, target);
    REQUIRE(!wrong.ok());
    CHECK(contains(wrong.error().what, "paceline.part is \"draft\", wanted is \"eagle\""));
}

TEST_CASE("a part that reads states of several layers is for a target of one segment") {
    const TestFolder folder;
    const ModelFile target = open_fixture("tiny-chat");
    eagle_of(target, kTokens, {1, 2}).write(folder.path() / "eagle.safetensors");
    const PartsSearch search{.option = folder.path().string(), .folders = {}};
    CHECK(use_parts(method_config("pearl-eagle").value(), search, target).ok());
    const Result<ResolvedConfig> fold =
        use_parts(method_config("fold-eagle").value(), search, target);
    REQUIRE(!fold.ok());
    CHECK(contains(fold.error().what, "give the target one segment"));
}

TEST_CASE("keys that an EAGLE draft does not have are refused with file, key and value") {
    CHECK(contains(refusal("source = \"eagle\"\nlayers = 3\n"), "layers = 3"));
    CHECK(contains(refusal("source = \"eagle\"\nskip_ratio = 0.5\n"), "skip_ratio"));
    CHECK(contains(refusal("source = \"first-layers\"\npart = \"x\"\n"), "part = \"x\""));
}

TEST_CASE("with --device cuda an EAGLE draft is on the GPU with its target") {
    for (const char* method : {"eagle2", "pearl-eagle", "fold-eagle"}) {
        CAPTURE(method);
        PipelineConfig config = method_config(method).value();
        const Status placed = use_device(config, *parse_device("cuda:0"));
        if (!placed.ok()) FAIL(placed.error().what);
        for (const StageConfig& stage : config.stages) CHECK(stage.device.gpu == 0);
    }
}

TEST_CASE("what is planned for an EAGLE draft is what it takes, and it reads features") {
    const TestFolder folder;
    const ModelFile target = open_fixture("tiny-chat");
    eagle_of(target, kTokens, {1, 2}).write(folder.path() / "eagle.safetensors");
    const ResolvedConfig found =
        use_parts(config_of("source = \"eagle\"\n"),
                  {.option = folder.path().string(), .folders = {}}, target)
            .value();
    CpuOptions options;
    options.kv_slots = 32;
    const DraftBackend plan =
        plan_draft_backend(*found.config.draft, found.parts.files, target, options).value();
    CHECK(kv_row_bytes(plan, target) == 0);
    const Result<std::unique_ptr<Backend>> made =
        make_backend(plan.file(target), plan.options, Device{});
    if (!made.ok()) FAIL(made.error().what);
    Backend& backend = *made.value();
    REQUIRE(backend.feature_slots() != nullptr);
    CHECK(backend.feature_slots()->width() == std::size_t{2} * 64);
    CHECK(backend.short_list(plan.head).size() == 5);
    const MemoryNeed need = plan_backend(plan.file(target), plan.options, "draft");
    CHECK(need.weight_bytes == backend.memory_use().weight_bytes);
    CHECK(need.kv_bytes == backend.memory_use().kv_bytes);
    CpuOptions spoilt = plan.options;
    spoilt.eagle->fuse.pop_back();
    for (const char* device : {"cpu", "cuda:0"}) {  // before a GPU is looked for
        CAPTURE(device);
        const Result<std::unique_ptr<Backend>> refused =
            make_backend(plan.file(target), spoilt, *parse_device(device));
        REQUIRE(!refused.ok());
        CHECK(contains(refused.error().what, "embedding and feature has 8191 numbers"));
    }
}

TEST_CASE("the features on their way to an EAGLE draft are planned for the last segment") {
    const TestFolder folder;
    const ModelFile target = open_fixture("tiny-chat");
    const auto last_need = [&](const std::vector<int>& layers) {
        eagle_of(target, kTokens, layers).write(folder.path() / "eagle.safetensors");
        const ResolvedConfig found =
            use_parts(config_of("source = \"eagle\"\n"),
                      {.option = folder.path().string(), .folders = {}}, target)
                .value();
        CpuOptions options;
        options.kv_slots = 32;
        const std::optional<DraftBackend> draft =
            plan_draft_backend(*found.config.draft, found.parts.files, target, options).value();
        const Placement placement = place(found.config, 2, {0}).value();
        for (const MemoryNeed& need : plan_stages(target, options, placement, {}, {}, draft)) {
            if (need.name == placement.stage(placement.verifier()).name) return need;
        }
        FAIL("no last segment");
        return MemoryNeed{};
    };
    const MemoryNeed two = last_need({1, 2});
    const EdgeSpec edge = feature_edge(StageId{1}, StageId{2}, 64, 2);
    const std::uint64_t tensors = std::uint64_t{edge.tensor_slots} * edge.tensor_bytes;
    const std::uint64_t row = std::uint64_t{2} * 64 * sizeof(float);
    CHECK(two.feature_bytes >= tensors + kVerifyRowsMax * row);
    CHECK(two.feature_bytes < tensors + kBatchRowsMax * row + edge.tensor_slots * 128);
    CHECK(two.other_bytes > two.feature_bytes + two.role_bytes);
    const MemoryNeed one = last_need({});  // the last states are those of the run itself
    CHECK(one.feature_bytes < two.feature_bytes / 2 + edge.tensor_slots * 128);
    CHECK(one.feature_bytes > 0);
    CHECK(one.other_bytes - one.feature_bytes == two.other_bytes - two.feature_bytes);
}
