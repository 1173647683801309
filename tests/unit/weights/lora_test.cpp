// Merging a LoRA on load: rows, fingerprints, what is refused.
#include "model/weights/lora.hpp"

#include <functional>
#include <limits>

#include <doctest/doctest.h>

#include "model/weights/synthetic/synthetic_model.hpp"
#include "model/weights/trained_parts.hpp"
#include "tests/support/contains.hpp"
#include "tests/support/fixture_model.hpp"
#include "tests/unit/weights/lora_builder.hpp"

namespace paceline {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace): test helpers in a test file
using testing::contains;
using testing::open_fixture;

struct Folder {
    TestFolder folder;
    std::string path = (folder.path() / "early-exit.safetensors").string();

    ModelFile merged(const SafetensorsBuilder& part, const std::string& model = "tiny-chat") const {
        part.write(path);
        Result<ModelFile> made = merge_lora(open_fixture(model), path);
        if (!made) FAIL(made.error().what);
        return std::move(made).value();
    }
    std::string refusal(const SafetensorsBuilder& part) const {
        part.write(path);
        const Result<ModelFile> made = merge_lora(open_fixture("tiny-chat"), path);
        REQUIRE(!made.ok());
        CHECK(contains(made.error().what, "early-exit.safetensors"));
        return made.error().what;
    }
};

TEST_CASE("rows of a merged matrix are those of the file and the product, others the file's") {
    for (const char* name : {"llama-f32", "llama-q4_1", "mistral-q8_0", "qwen3-bf16"}) {
        CAPTURE(name);
        const Folder at;
        const ModelFile plain = open_fixture(name);
        const ModelFile merged =
            at.merged(lora_of(plain, {.only = {"blk.0.attn_k", "blk.1.ffn_down"}}), name);
        const SafetensorsFile lora = SafetensorsFile::open(at.path).value();
        const TensorView& tensor = merged.layer(1).down;
        const std::vector<float> want = merged_by_hand(plain.layer(1).down, lora, "blk.1.ffn_down");
        std::vector<float> row(static_cast<std::size_t>(tensor.cols));
        for (std::int64_t r = 0; r < tensor.rows; ++r) {
            dequantize_row(tensor, r, row);
            for (std::size_t c = 0; c < row.size(); ++c) {
                REQUIRE(row[c] ==
                        doctest::Approx(
                            static_cast<double>(want[static_cast<std::size_t>(r) * row.size() + c]))
                            .epsilon(1e-5));
            }
        }
        CHECK(merged.layer(0).k.added != nullptr);
        CHECK(merged.layer(0).down.added == nullptr);
        CHECK(merged.lora()->tensors == 2);
        const auto in_list = [&](const TensorView& view) { return view.added != nullptr; };
        CHECK(std::count_if(merged.tensors().begin(), merged.tensors().end(), in_list) == 2);
    }
}

TEST_CASE("a merged target has a fingerprint of its own, of the numbers and not of the names") {
    const Folder at;
    const ModelFile plain = open_fixture("tiny-chat");
    const std::uint64_t first = at.merged(lora_of(plain, {.half = true})).fingerprint();
    CHECK(first != plain.fingerprint());
    CHECK(at.merged(lora_of(plain, {.half = true})).fingerprint() == first);
    CHECK(at.merged(lora_of(plain, {.half = true})).plain_fingerprint() == plain.fingerprint());
    SafetensorsBuilder renamed = lora_of(plain, {.half = true});
    renamed.metadata["paceline.name"] = "another name";
    CHECK(at.merged(renamed).fingerprint() == first);
    SafetensorsBuilder scaled = lora_of(plain, {.half = true});
    scaled.metadata["alpha"] = "8.5";
    CHECK(at.merged(scaled).fingerprint() != first);
    CHECK(at.merged(lora_of(plain, {.half = true, .seed = 2})).fingerprint() != first);
    const ModelFile merged = at.merged(lora_of(plain, {}));
    draft_of(plain, {1, 2}).write(at.path);
    CHECK(contains(open_draft_part(at.path, merged).error().what,
                   fingerprint_text(merged.fingerprint())));
    SafetensorsBuilder own = draft_of(plain, {1, 2});
    own.metadata["paceline.target"] = fingerprint_text(merged.fingerprint());
    own.write(at.path);
    const Result<DraftPart> draft = open_draft_part(at.path, merged);
    REQUIRE(draft.ok());
    CHECK(draft.value().file.lora() == nullptr);
}

TEST_CASE("a merged target says which LoRA it has") {
    const Folder at;
    SafetensorsBuilder part = lora_of(open_fixture("tiny-chat"), {.rank = 2, .alpha = 5});
    part.metadata["exits"] = "1,2";
    const ModelFile merged = at.merged(part);
    REQUIRE(merged.lora() != nullptr);
    CHECK(merged.lora()->path == at.path);
    CHECK(merged.lora()->name == "a test's lora");
    CHECK(merged.lora()->rank == 2);
    CHECK(merged.lora()->scale == 2.5F);
    CHECK(merged.lora()->exits == std::vector<int>{1, 2});
    CHECK(merged.lora()->tensors == 14);
    CHECK(open_fixture("tiny-chat").lora() == nullptr);
}

TEST_CASE("a LoRA that does not fit is refused with the name and the value") {
    const Folder at;
    const ModelFile target = open_fixture("tiny-chat");
    using Change = std::function<void(SafetensorsBuilder&)>;
    const auto set = [](const char* key, const char* value) -> Change {
        return [=](SafetensorsBuilder& part) { part.metadata[key] = value; };
    };
    const auto add = [](const char* name, const char* dtype, std::vector<std::int64_t> shape,
                        float value = 0.0F) -> Change {
        return [=](SafetensorsBuilder& part) {
            std::size_t count = 1;
            for (const std::int64_t size : shape) count *= static_cast<std::size_t>(size);
            if (std::string{dtype} == "F32")
                part.add_values(name, dtype, shape, std::vector<float>(count, value));
            else
                part.add_values(name, dtype, shape, std::vector<std::int8_t>(count));
        };
    };
    const std::pair<Change, const char*> cases[] = {
        {set("paceline.target", "0123456789abcdef"), "with the fingerprint 0123456789abcdef"},
        {set("paceline.part", "heads"), "paceline.part is \"heads\", wanted is \"lora\""},
        {set("rank", "0"), "metadata \"rank\" is \"0\", must be 1 to 1024"},
        {set("rank", "8"),
         "tensor \"blk.0.attn_q.lora_a\" (F32 [4, 64]) must have the shape [8, 64]"},
        {set("alpha", ""), "metadata \"alpha\" is missing"},
        {set("alpha", "inf"), "metadata \"alpha\" is \"inf\", must be a finite number"},
        {set("alpha", "two"), "metadata \"alpha\" is \"two\""},
        {set("exits", "2,1"), "metadata \"exits\" is \"2,1\", must be ascending layers of 1 to 2"},
        {set("exits", "1,"), "metadata \"exits\" is \"1,\""},
        {set("exits", "3"), "metadata \"exits\" is \"3\""},
        {add("blk.1.attn_q.lora_a", "F32", {4, 64}), "tensor \"blk.1.attn_q.lora_b\" is missing"},
        {add("blk.1.ffn_up.lora_b", "F32", {96, 4}), "tensor \"blk.1.ffn_up.lora_a\" is missing"},
        {add("blk.2.attn_q.lora_a", "F32", {4, 64}),
         "tensor \"blk.2.attn_q.lora_a\" (F32 [4, 64]) has no place in this part"},
        {add("blk.0.attn_norm.lora_a", "F32", {4, 64}), "has no place in this part"},
        {add("output.lora_a", "F32", {4, 64}), "has no place in this part"},
    };
    for (const auto& [change, what] : cases) {
        CAPTURE(what);
        SafetensorsBuilder part = lora_of(target, {.only = {"blk.0.attn_q"}});
        change(part);
        const std::string said = at.refusal(part);
        CAPTURE(said);
        CHECK(contains(said, what));
    }
    // Numbers and types of a pair that is there.
    const std::pair<std::pair<Change, Change>, const char*> pairs[] = {
        {{add("blk.0.attn_v.lora_a", "F32", {4, 64}, std::numeric_limits<float>::quiet_NaN()),
          add("blk.0.attn_v.lora_b", "F32", {32, 4})},
         "tensor \"blk.0.attn_v.lora_a\" holds nan at 0; it must be finite"},
        {{add("blk.0.attn_v.lora_a", "F32", {4, 64}, 1e20F),
          add("blk.0.attn_v.lora_b", "F32", {32, 4}, 1e20F)},
         "tensors \"blk.0.attn_v.lora_a\" and \"blk.0.attn_v.lora_b\" may change a weight by "
         "8e+40, "
         "more than 65504"},
        {{add("blk.0.attn_v.lora_a", "I8", {4, 64}), add("blk.0.attn_v.lora_b", "F32", {32, 4})},
         "tensor \"blk.0.attn_v.lora_a\" (I8 [4, 64]) must be F32, F16 or BF16"},
        {{add("blk.0.attn_v.lora_a", "F32", {4, 64}), add("blk.0.attn_v.lora_b", "F32", {64, 4})},
         "tensor \"blk.0.attn_v.lora_b\" (F32 [64, 4]) must have the shape [32, 4]"},
    };
    for (const auto& [changes, what] : pairs) {
        CAPTURE(what);
        SafetensorsBuilder part = lora_of(target, {.only = {"blk.0.attn_q"}});
        changes.first(part);
        changes.second(part);
        const std::string said = at.refusal(part);
        CAPTURE(said);
        CHECK(contains(said, what));
    }
    SafetensorsBuilder empty = part_of("lora", target);
    empty.metadata["rank"] = "4";
    empty.metadata["alpha"] = "4";
    empty.add_values("tokens", "I32", {1}, std::vector<TokenId>{1});
    CHECK(contains(at.refusal(empty), "has no tensor \"blk.LAYER.KIND.lora_a\""));
}

TEST_CASE("a LoRA is merged once, and never into a shape") {
    const Folder at;
    const ModelFile plain = open_fixture("tiny-chat");
    ModelFile merged = at.merged(lora_of(plain, {}));
    const Result<ModelFile> twice = merge_lora(std::move(merged), at.path);
    REQUIRE(!twice.ok());
    CHECK(contains(twice.error().what, "which has merged " + at.path));
    Result<ModelFile> shape =
        random_model("shape",
                     "name = \"s\"\nlayers = 2\ndim = 64\nheads = 4\nkv_heads = 2\nffn_dim = 96\n"
                     "vocab_size = 320\ntype = \"f32\"\n");
    REQUIRE(shape.ok());
    const Result<ModelFile> made = merge_lora(std::move(shape).value(), at.path);
    REQUIRE(!made.ok());
    CHECK(contains(made.error().what, "a shape without weights"));
}

}  // namespace
}  // namespace paceline
