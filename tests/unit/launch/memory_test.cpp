// Whether a run fits into memory: its need, the available memory, and the message if it does not
// fit.
#include <string>

#include <doctest/doctest.h>

#include "launch/load/draft_backend.hpp"
#include "launch/load/exit_heads.hpp"
#include "launch/load/load_model.hpp"
#include "launch/load/make_backend.hpp"
#include "launch/placement/available_memory.hpp"
#include "launch/placement/memory_plan.hpp"
#include "launch/placement/stage_assignment.hpp"
#include "model/cpu/cpu_backend.hpp"
#include "tests/support/contains.hpp"
#include "tests/support/source_tree.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file
using paceline::testing::contains;

namespace {

const std::string kTiny = testing::fixtures() + "/models/tiny-chat.gguf";

}  // namespace

TEST_CASE("available memory is read from a line of its own") {
    CHECK(parse_mem_available("MemTotal: 9 kB\nMemAvailable:    2048 kB\n") == 2048U * 1024U);
    CHECK(!parse_mem_available("MemTotal: 9 kB\nXMemAvailable: 3 kB\n").has_value());
    CHECK(!parse_mem_available("").has_value());
}

TEST_CASE("a group leaves its limit less its use, not counting files that can be dropped") {
    const std::string stat = "anon 10\ninactive_file 300\nactive_file 5\n";
    CHECK(parse_group_room("1000\n", "600\n", stat, "inactive_file ") == 700U);
    CHECK(parse_group_room("1000", "1200", "", "inactive_file ") == 0U);
    CHECK(parse_group_room("1000", "100", "inactive_file 300", "inactive_file ") == 1000U);
}

TEST_CASE("a group without a limit leaves everything") {
    CHECK(!parse_group_room("max\n", "600\n", "", "inactive_file ").has_value());
    CHECK(!parse_group_room("9223372036854771712", "6", "", "total_inactive_file ").has_value());
}

TEST_CASE("what is planned for a backend is what it then takes") {
    const Result<ModelFile> file = ModelFile::open(kTiny);
    REQUIRE(file.ok());
    CpuOptions options;
    options.kv_slots = 100;
    options.rows_max = 64;
    const MemoryNeed need = plan_backend(file.value(), options, "target");
    const auto backend = make_cpu_backend(file.value(), options);
    REQUIRE(backend.ok());
    const MemoryUse use = backend.value()->memory_use();
    CHECK(need.weight_bytes == use.weight_bytes);
    CHECK(need.kv_bytes == use.kv_bytes);
    CHECK(need.other_bytes >= use.workspace_bytes);
}

TEST_CASE("what is planned for a segment with exit heads, and for a draft, is what they take") {
    const Result<ModelFile> file = ModelFile::open(kTiny);
    REQUIRE(file.ok());
    const PipelineConfig config = parse_pipeline_config(
                                      "[[stage]]\nname = \"a\"\nrole = \"early-verify\"\n"
                                      "[[stage]]\nname = \"b\"\nrole = \"final-verify\"\n"
                                      "[[stage]]\nname = \"d\"\nrole = \"draft\"\n"
                                      "[draft]\nsource = \"first-layers\"\n"
                                      "exit_alternatives = 1\n"
                                      "[exit]\nhead = \"random\"\nshort_list = 50\nahead = 2\n"
                                      "[schedule]\nprefill_rows = 300\n",
                                      "x.toml")
                                      .value();
    CpuOptions options;
    options.kv_slots = 64;
    options.rows_max = 64;
    const Placement placement = place(config, file.value().config().layers, {0}).value();
    Result<DraftBackend> draft = plan_draft_backend(*config.draft, {}, file.value(), options);
    REQUIRE(draft.ok());
    const CpuOptions draft_options = draft.value().options;
    const std::optional<DraftBackend> of_draft = std::move(draft).value();
    const auto needs = plan_stages(file.value(), options, placement, config.exit, {}, of_draft);
    REQUIRE(needs.size() == 3);
    for (std::size_t i = 0; i < needs.size(); ++i) {
        CAPTURE(i);
        CpuOptions own = i == 2 ? draft_options : options;
        const PlacedStage& stage = placement.stages[i];
        own.rows_max = static_cast<int>(stage.rows_max);
        CHECK(own.rows_max == 300);
        if (i < 2) {
            const ExitPlace place_of{stage.layers.last, stage.exit, i == 1};
            ExitHeads heads = exit_heads(*config.exit, file.value().config(), {}, place_of, {});
            own.first_layer = stage.layers.first;
            own.last_layer = stage.layers.last;
            own.final_head = heads.final_head;
            own.heads = std::move(heads.heads);
        }
        const auto backend = make_cpu_backend(file.value(), own);
        if (!backend.ok()) FAIL(backend.error().what);
        CHECK(needs[i].weight_bytes == backend.value()->memory_use().weight_bytes);
        CHECK(needs[i].kv_bytes == backend.value()->memory_use().kv_bytes);
        CHECK(needs[i].other_bytes >= backend.value()->memory_use().workspace_bytes);
    }
}

TEST_CASE("a draft that skips layers has them in memory only where it reads the text with them") {
    const ModelFile file = ModelFile::open(kTiny).value();
    CpuOptions options;
    options.kv_slots = 64;
    const auto backend_of = [&](const std::string& keys) {
        const PipelineConfig config = parse_pipeline_config(
                                          "[[stage]]\nname = \"d\"\nrole = \"draft\"\n"
                                          "[[stage]]\nname = \"a\"\nrole = \"segment\"\n[draft]\n" +
                                              keys,
                                          "x.toml")
                                          .value();
        DraftBackend draft = plan_draft_backend(*config.draft, {}, file, options).value();
        const MemoryNeed need = plan_backend(file, draft.options, "draft");
        const auto backend = make_cpu_backend(file, draft.options).value();
        CHECK(need.weight_bytes == backend->memory_use().weight_bytes);
        CHECK(need.kv_bytes == backend->memory_use().kv_bytes);
        CHECK(kv_row_bytes(draft, file) == backend->kv_bytes());
        return draft;
    };
    const std::uint64_t all = packed_bytes(file, options);
    const std::string source = "source = \"skip-layers\"\nskip = \"attn:1 mlp:0\"\n";
    const DraftBackend whole = backend_of(source);
    CHECK(whole.whole_text);
    CHECK(whole.skip.text() == "attn:1 mlp:0");
    CHECK(packed_bytes(file, whole.options) == all);
    const DraftBackend kept = backend_of(source + "whole_text = false\n");
    CHECK_FALSE(kept.whole_text);
    CHECK(packed_bytes(file, kept.options) < all);
    CHECK(kept.options.last_layer == 2);
    // A search needs all layers, and slots for two windows in whole pages.
    const DraftBackend searching = backend_of(
        "source = \"skip-layers\"\nchoose = \"search\"\nwindow = 40\nkeep_first = 0\nkeep_last = "
        "0\n");
    CHECK(packed_bytes(file, searching.options) == all);
    CHECK(searching.options.kv_slots == whole.options.kv_slots + 96);
    REQUIRE(searching.search.has_value());
    CHECK(searching.search->search.layers == 2);
    CHECK(searching.search->interval == 32);
    // The first layers are the set of all others.
    const DraftBackend first = backend_of("source = \"first-layers\"\nlayers = 1\n");
    CHECK(first.skip.text() == "attn:1 mlp:1");
    CHECK(first.options.last_layer == 1);
    CHECK(first.options.final_head);
}

TEST_CASE("a set of skipped layers that does not fit the model is refused by key and part") {
    const auto refused = [](const SkipConfig& skip) {
        const Result<SkipSet> set =
            skip_set_of({.model = DraftModelKind::SkipLayers, .skip = skip}, 4);
        REQUIRE_FALSE(set.ok());
        return set.error().what;
    };
    CHECK(refused({.set = "attn:7"}).find("attn:7") != std::string::npos);
    CHECK(refused({.set = "unifrm"}).find("[draft] skip") != std::string::npos);
    CHECK(refused({.set = "attn:0-3 mlp:0-3"}).find("none of the model's 4 layers") !=
          std::string::npos);
    CHECK(refused({.ratio = 1.0, .keep_first = 0, .keep_last = 0}).find("none of the model's") !=
          std::string::npos);
    DraftConfig half{.model = DraftModelKind::SkipLayers, .skip = {.ratio = 0.5}};
    CHECK(skip_set_of(half, 30).value().count() == 28);
    CHECK_FALSE(skip_set_of(half, 30).value().skips(0));
    CHECK_FALSE(skip_set_of(half, 30).value().skips(59));
    half.skip.keep_first = 40;
    CHECK(skip_set_of(half, 30).value().count() == 0);
}

TEST_CASE("a short list has the first tokens, or is none where it would have all") {
    CHECK(short_list(5, 100).size() == 5);
    CHECK(short_list(0, 100).empty());
    CHECK(short_list(100, 100).empty());  // all of them: no list
}

TEST_CASE("the plan of two segments has the weights of both, each with its own layers") {
    const Result<ModelFile> file = ModelFile::open(kTiny);
    REQUIRE(file.ok());
    CpuOptions options;
    options.kv_slots = 64;
    const PipelineConfig config = parse_pipeline_config(
                                      "[[stage]]\nname = \"a\"\nrole = \"segment\"\n"
                                      "[[stage]]\nname = \"b\"\nrole = \"segment\"\n",
                                      "x.toml")
                                      .value();
    const Placement placement = place(config, file.value().config().layers, {0}).value();
    const auto needs = plan_stages(file.value(), options, placement, {}, {}, {});
    REQUIRE(needs.size() == 2);
    const MemoryNeed whole = plan_backend(file.value(), options, "all");
    CHECK(needs[0].kv_bytes + needs[1].kv_bytes == whole.kv_bytes);
    CHECK(needs[0].weight_bytes + needs[1].weight_bytes >= whole.weight_bytes);
}

TEST_CASE("what does not fit is refused with the numbers and what could help") {
    const std::vector<MemoryNeed> needs{{.name = "a",
                                         .weight_bytes = 100'000'000,
                                         .kv_bytes = 900'000'000,
                                         .other_bytes = 1'000'000}};
    CHECK(check_memory(needs, std::nullopt).ok());
    CHECK(check_memory(needs, AvailableMemory{1'001'000'000, "MemAvailable"}).ok());
    const Status kv = check_memory(needs, AvailableMemory{500'000'000, "MemAvailable"});
    REQUIRE(!kv.ok());
    CHECK(kv.error().code == Errc::OutOfMemory);
    CHECK(contains(kv.error().what, "needs 1001 MB of memory, there are 500 MB (MemAvailable)"));
    CHECK(contains(kv.error().what, "a: weights 100 MB, KV cache 900 MB"));
    CHECK(contains(kv.error().what, "(-c)"));
    const Status weights =
        check_memory(needs, AvailableMemory{50'000'000, "the limit of cgroup /x"});
    REQUIRE(!weights.ok());
    CHECK(contains(weights.error().what, "--dtype"));
}

TEST_CASE("what lies on a GPU takes none of the host's memory") {
    const std::vector<MemoryNeed> needs{{.name = "a",
                                         .weight_bytes = 100'000'000,
                                         .kv_bytes = 900'000'000,
                                         .other_bytes = 1'000'000,
                                         .on_gpu = true}};
    CHECK(check_memory(needs, AvailableMemory{1'000'000, "MemAvailable"}).ok());
    const Status other = check_memory(needs, AvailableMemory{500'000, "MemAvailable"});
    REQUIRE(!other.ok());
    CHECK(contains(other.error().what, "[a: other 1 MB]"));
}

TEST_CASE("what a segment is told goes to a GPU as it goes to a CPU, in batches that a GPU takes") {
    ModelOptions model;
    model.dtype = "int8";
    CpuOptions options = cpu_options(model, ThreadPlan{}, 300, Device{2});
    options.first_layer = 3;
    options.last_layer = 7;
    options.final_head = true;
    options.heads.resize(2);
    options.adapter.emplace();
    const CudaOptions cuda = cuda_options(options, Device{2});
    CHECK(cuda.device == 2);
    CHECK(cuda.exact);
    CHECK_FALSE(cuda_options(options, Device{2, false}).exact);
    CHECK(cuda.dtype == Dtype::Int8);
    CHECK(cuda.kv == KvType::BF16);
    CHECK(cuda.first_layer == 3);
    CHECK(cuda.last_layer == 7);
    CHECK(cuda.kv_slots == 300);
    CHECK(cuda.rows_max == CudaOptions{}.rows_max);
    CHECK(cuda.final_head);
    CHECK(cuda.heads.size() == 2);
    CHECK(cuda.adapter.has_value());
    options.rows_max = 5000;
    CHECK(cuda_options(options, Device{2}).rows_max == cuda::kGemmRowsMax);
    options.rows_max = 64;
    CHECK(cuda_options(options, Device{2}).rows_max == 64);
}

TEST_CASE("--kv-dtype auto is f16 on a CPU and bf16 on a GPU, any other word holds for both") {
    ModelOptions model;
    CHECK(kv_type(model, Device{}) == KvType::F16);
    CHECK(kv_type(model, Device{0}) == KvType::BF16);
    model.kv_dtype = "f16";
    CHECK(kv_type(model, Device{0}) == KvType::F16);
    model.kv_dtype = "f32";
    CHECK(kv_type(model, Device{}) == KvType::F32);
}

TEST_CASE("an assignment comes out of its bytes as it went in, and shorter bytes are refused") {
    StageAssignment assignment;
    assignment.model.model = "/models/x.gguf";
    assignment.model.lora = "/models/early-exit.safetensors";
    assignment.stages = {{StageId{1}, StageRole::Segment, {0, 7}},
                         {StageId{3}, StageRole::Draft, {}, false, Device{1}}};
    assignment.cores = {1, 3};
    assignment.verbose = true;
    const std::vector<std::byte> bytes = encode(assignment);
    const Result<StageAssignment> back = decode_assignment(bytes);
    REQUIRE(back.ok());
    CHECK(back.value().model.model == "/models/x.gguf");
    CHECK(back.value().model.lora == "/models/early-exit.safetensors");
    REQUIRE(back.value().stages.size() == 2);
    CHECK(back.value().stages[0].layers == LayerRange{0, 7});
    CHECK(back.value().stages[1].id == StageId{3});
    CHECK(back.value().stages[0].device == Device{});
    CHECK(back.value().stages[1].device == Device{1});
    CHECK(back.value().cores == std::vector{1, 3});
    CHECK(back.value().verbose);
    for (std::size_t length = 0; length < bytes.size(); ++length) {
        CHECK(!decode_assignment(std::span{bytes}.first(length)).ok());
    }
}
