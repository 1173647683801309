// Trained parts against the target that they were made for: what is borrowed, what is refused.
#include "model/weights/trained_parts.hpp"

#include <functional>
#include <limits>

#include <doctest/doctest.h>

#include "tests/support/contains.hpp"
#include "tests/support/fixture_model.hpp"
#include "tests/unit/weights/safetensors_builder.hpp"

namespace paceline {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace): test helpers in a test file
using testing::contains;
using testing::open_fixture;

const std::vector<TokenId> kTokens{0, 3, 4, 200, 511};

/// What opening says of `part`, which must be refused with the file's name.
template <class Open>
std::string refusal(const SafetensorsBuilder& part, const ModelFile& target, Open open) {
    const TestFolder folder;
    const std::string path = (folder.path() / "part.safetensors").string();
    part.write(path);
    const auto opened = open(path, target);
    REQUIRE(!opened.ok());
    CHECK(contains(opened.error().what, "part.safetensors"));
    return opened.error().what;
}

TEST_CASE("a draft part is a model of its own layers, and what it has not is its target's") {
    const TestFolder folder;
    const std::string path = (folder.path() / "draft.safetensors").string();
    const ModelFile target = open_fixture("tiny-chat");
    draft_of(target, kTokens).write(path);
    Result<DraftPart> part = open_draft_part(path, target);
    if (!part) FAIL(part.error().what);
    const ModelFile moved = std::move(part.value().file);
    CHECK(moved.path() == path);
    CHECK(part.value().tokens == kTokens);
    CHECK(part.value().card.licence == "CC0");
    CHECK(moved.config().layers == target.config().layers);
    CHECK(moved.config().vocab_size == target.config().vocab_size);
    CHECK(moved.embedding().data == target.embedding().data);
    CHECK(moved.output_head().data == target.output_head().data);
    CHECK(&moved.tokenizer() == &target.tokenizer());
    std::vector<float> ours(96);
    std::vector<float> theirs(96);
    dequantize_row(moved.layer(1).down, 63, std::span{ours});
    dequantize_row(target.layer(1).down, 63, std::span{theirs});
    CHECK(ours == theirs);
    CHECK(moved.fingerprint() != target.fingerprint());
    moved.release(moved.embedding());  // the target's bytes
    moved.release(moved.layer(0).q);
    CHECK(moved.check_unchanged().ok());
    ours.resize(64);
    theirs.resize(64);
    dequantize_row(moved.embedding(), 5, std::span{ours});
    dequantize_row(target.embedding(), 5, std::span{theirs});
    CHECK(ours == theirs);
}

TEST_CASE("a draft part that differs in one weight has another fingerprint") {
    const TestFolder folder;
    const ModelFile target = open_fixture("tiny-chat");
    const std::string path = (folder.path() / "draft.safetensors").string();
    draft_of(target, kTokens).write(path);
    const std::uint64_t first = open_draft_part(path, target).value().file.fingerprint();
    CHECK(open_draft_part(path, target).value().file.fingerprint() == first);
    SafetensorsBuilder other = draft_of(target, kTokens);
    other.metadata["paceline.name"] = "another one";
    other.write(path);
    CHECK(open_draft_part(path, target).value().file.fingerprint() != first);
}

TEST_CASE("a draft part may have a matrix before its norm") {
    const TestFolder folder;
    const ModelFile target = open_fixture("tiny-chat");
    const std::string path = (folder.path() / "draft.safetensors").string();
    SafetensorsBuilder with = draft_of(target, kTokens);
    with.write(path);
    CHECK(open_draft_part(path, target).value().transform.empty());
    with.add_values("transform", "F32", {64, 64}, std::vector<float>(64 * 64, 0.25F));
    with.write(path);
    const Result<DraftPart> part = open_draft_part(path, target);
    if (!part) FAIL(part.error().what);
    CHECK(part.value().transform == std::vector<float>(64 * 64, 0.25F));
    SafetensorsBuilder narrow = draft_of(target, kTokens);
    narrow.add_values("transform", "F32", {64, 32}, std::vector<float>(64 * 32));
    CHECK(contains(refusal(narrow, target, open_draft_part), "transform"));
}

TEST_CASE("an EAGLE part is one layer, a matrix over embedding and feature, and one that joins") {
    const TestFolder folder;
    const ModelFile target = open_fixture("tiny-chat");
    const std::string path = (folder.path() / "eagle.safetensors").string();
    eagle_of(target, kTokens).write(path);
    const Result<EaglePart> part = open_eagle_part(path, target);
    if (!part) FAIL(part.error().what);
    CHECK(part.value().file.config().layers == 1);
    CHECK(part.value().file.embedding().data == target.embedding().data);
    CHECK(part.value().tokens == kTokens);
    CHECK(part.value().spec.layers.empty());
    CHECK(part.value().spec.join.empty());
    REQUIRE(part.value().spec.fuse.size() == std::size_t{64} * 128);
    CHECK(part.value().spec.fuse[3 * 128 + 3] == 0.75F);
    CHECK(part.value().spec.fuse[3 * 128 + 64 + 4] == 0.125F);
    eagle_of(target, kTokens, {1, 2}).write(path);
    const Result<EaglePart> joined = open_eagle_part(path, target);
    if (!joined) FAIL(joined.error().what);
    CHECK(joined.value().spec.layers == std::vector<int>{1, 2});
    CHECK(joined.value().spec.join[64 + 0] == 0.5F);
    CHECK(contains(open_draft_part(path, target).error().what,
                   "paceline.part is \"eagle\", wanted is \"draft\""));
}

TEST_CASE("an EAGLE part that does not fit is refused with the name and the value") {
    const ModelFile target = open_fixture("tiny-chat");
    SafetensorsBuilder deep = eagle_of(target, kTokens);
    deep.metadata["layers"] = "2";
    add_layer(deep, 1, target.layer(0));
    CHECK(contains(refusal(deep, target, open_eagle_part), "an EAGLE draft has 1"));
    SafetensorsBuilder order = eagle_of(target, kTokens, {1, 2});
    order.metadata["feature_layers"] = "2,1";
    CHECK(contains(refusal(order, target, open_eagle_part), "feature_layers"));
    SafetensorsBuilder none = eagle_of(target, kTokens);
    none.metadata["feature_layers"] = "1";
    CHECK(contains(refusal(none, target, open_eagle_part), "\"join\" is missing"));
    SafetensorsBuilder unused = eagle_of(target, kTokens);
    unused.add_values("join", "F32", {64, 64}, std::vector<float>(64 * 64));
    CHECK(contains(refusal(unused, target, open_eagle_part), "join"));
    CHECK(contains(refusal(draft_of(target, kTokens), target, open_eagle_part),
                   "paceline.part is \"draft\", wanted is \"eagle\""));
}

TEST_CASE("heads and adapters come with the layers that they were trained for") {
    const TestFolder folder;
    const ModelFile target = open_fixture("tiny-chat");
    const std::string path = (folder.path() / "part.safetensors").string();
    heads_of(target, {1, 2}, 3, kTokens, 0.5F).write(path);
    const Result<HeadsPart> heads = open_heads_part(path, target);
    if (!heads) FAIL(heads.error().what);
    CHECK(heads.value().exits.size() == 2);
    CHECK(heads.value().exits.at(2)[65] == 0.5F);
    CHECK(heads.value().ahead.size() == 3);
    CHECK(heads.value().norm_first);
    adapter_of(target, 1, kTokens).write(path);
    const Result<AdapterPart> adapter = open_adapter_part(path, target);
    if (!adapter) FAIL(adapter.error().what);
    REQUIRE(adapter.value().adapters.size() == 1);
    const AdapterSpec& spec = adapter.value().adapters.at(1);
    CHECK(spec.heads == target.config().heads);
    CHECK(spec.k.size() == std::size_t{32} * 64);
    CHECK(spec.tokens == kTokens);
    CHECK(contains(open_heads_part(path, target).error().what,
                   "paceline.part is \"adapter\", wanted is \"heads\""));
}

TEST_CASE("a part of another model is refused with both fingerprints") {
    const ModelFile target = open_fixture("tiny-chat");
    SafetensorsBuilder part = draft_of(target, kTokens);
    part.metadata["paceline.target"] = "0123456789abcdef";
    const std::string what = refusal(part, target, open_draft_part);
    CHECK(contains(what, "0123456789abcdef"));
    CHECK(contains(what, fingerprint_text(target.fingerprint())));
    CHECK(contains(what, "tiny-chat.gguf"));
}

TEST_CASE("a draft part that does not fit is refused with the name and the value") {
    const ModelFile target = open_fixture("tiny-chat");
    using Change = std::function<void(SafetensorsBuilder&)>;
    const auto set = [](const char* key, const char* value) -> Change {
        return [=](SafetensorsBuilder& part) { part.metadata[key] = value; };
    };
    const auto drop = [](const char* key) -> Change {
        return [=](SafetensorsBuilder& part) { part.metadata.erase(key); };
    };
    const std::pair<Change, const char*> cases[] = {
        {drop("paceline.format"), "is no trained part"},
        {set("paceline.format", "parts-2"), "paceline.format is \"parts-2\""},
        {set("paceline.part", "poem"), "paceline.part is \"poem\""},
        {set("paceline.target", "0123456789ABCDEF"), "must be a fingerprint"},
        {set("paceline.target", "12"), "paceline.target is \"12\""},
        {drop("layers"), "metadata \"layers\" is missing"},
        {set("layers", "0"), "metadata \"layers\" is \"0\", must be 1 to 1024"},
        {set("layers", "2x"), "metadata \"layers\" is \"2x\""},
        {set("layers", "3"), "tensor \"layers.2.attn_norm\" is missing"},
        {set("layers", "1"), "tensor \"layers.1.attn_norm\" (F32 [64]) has no place in this part"},
        {set("dim", "128"), "metadata \"dim\" is 128, the target has 64"},
        {set("head_dim", "32"), "metadata \"head_dim\" is 32, the target has 16"},
        {set("kv_heads", "3"), "no multiple of kv_heads 3"},
        {set("heads", "2"), "tensor \"layers.0.q\" (U8 [64, 68]) must have the shape [32, 68]"},
        {set("ffn_dim", "97"), "must have the shape [97, 68]"},
        {set("type.layers.0.q", "Q4_1"), "must have the shape [64, 40]"},
        {set("type.layers.0.q", "Q9_9"), "metadata \"type.layers.0.q\" is \"Q9_9\""},
        {set("type.output_norm", "Q8_0"), "is said to be Q8_0, which is U8"},
        {drop("type.layers.1.down"), "have its block type as metadata \"type.layers.1.down\""},
    };
    for (const auto& [change, what] : cases) {
        CAPTURE(what);
        SafetensorsBuilder part = draft_of(target, kTokens);
        change(part);
        const std::string said = refusal(part, target, open_draft_part);
        CAPTURE(said);
        CHECK(contains(said, what));
    }
}

TEST_CASE("a short list must be ascending and of the target's tokens") {
    const ModelFile target = open_fixture("tiny-chat");
    const std::pair<std::vector<TokenId>, const char*> cases[] = {
        {{1, 5, 5}, "tokens[2] is 5, must be above the one before it, 5"},
        {{-1, 5}, "tokens[0] is -1, the target has the tokens 0 to 511"},
        {{1, 512}, "tokens[1] is 512"},
        {{}, "at least one token"},
    };
    for (const auto& [tokens, what] : cases) {
        const std::string said = refusal(heads_of(target, {1}, 0, tokens), target, open_heads_part);
        CAPTURE(said);
        CHECK(contains(said, what));
    }
}

TEST_CASE("numbers that are not finite are refused where they stand") {
    const ModelFile target = open_fixture("tiny-chat");
    const SafetensorsBuilder part =
        heads_of(target, {2}, 0, kTokens, std::numeric_limits<float>::quiet_NaN());
    CHECK(contains(refusal(part, target, open_heads_part),
                   "tensor \"exit.2.transform\" holds nan at 0; it must be finite"));
    SafetensorsBuilder announced = heads_of(target, {1}, 0, kTokens);
    announced.metadata["exit.2"] = "1";
    CHECK(contains(refusal(announced, target, open_heads_part),
                   "tensor \"exit.2.transform\" is missing"));
}

TEST_CASE("residual look-ahead heads say so, and their tree is a list of nodes") {
    const TestFolder folder;
    const std::string path = (folder.path() / "medusa.safetensors").string();
    const ModelFile target = open_fixture("tiny-chat");
    medusa_of(target, 3, kTokens, "0 1 0.2 0.2.0 1.15").write(path);
    Result<HeadsPart> part = open_heads_part(path, target);
    if (!part) FAIL(part.error().what);
    CHECK(part.value().ahead_block == HeadBlock::Residual);
    CHECK(part.value().ahead.size() == 3);
    CHECK(part.value().ahead_tree ==
          std::vector<AheadNode>{{-1, 0}, {-1, 1}, {0, 2}, {2, 0}, {1, 15}});
    heads_of(target, {1}, 2, kTokens).write(path);
    part = open_heads_part(path, target);
    REQUIRE(part.ok());
    CHECK(part.value().ahead_block == HeadBlock::Linear);
    CHECK(part.value().ahead_tree.empty());
}

TEST_CASE("a damaged block or tree of look-ahead heads is refused with key and value") {
    const ModelFile target = open_fixture("tiny-chat");
    std::string many;
    for (int a = 0; a < 8; ++a) {
        many += (a == 0 ? "" : " ") + std::to_string(a);
        for (int b = 0; b < 7; ++b) many += " " + std::to_string(a) + "." + std::to_string(b);
    }
    const std::pair<std::string, const char*> cases[] = {
        {"0 0", "metadata \"ahead_tree\" has \"0\", which is there already"},
        {"0 1.0", "has \"1.0\", must come after the path that it continues"},
        {"0.", "has \"0.\", must be ranks of 0 to 15 with dots between them"},
        {"16", "has \"16\", must be ranks of 0 to 15"},
        {"-1", "has \"-1\", must be ranks"},
        {"0  1", "has \"\", must be ranks"},
        {"0 0.0 0.0.0", "has \"0.0.0\", the file has 2 look-ahead heads"},
        {many, "has \"7.6\", more than 63 nodes"},
    };
    for (const auto& [tree, what] : cases) {
        const std::string said =
            refusal(medusa_of(target, 2, kTokens, tree), target, open_heads_part);
        CAPTURE(said);
        CHECK(contains(said, what));
    }
    SafetensorsBuilder unknown = medusa_of(target, 2, kTokens, "");
    unknown.metadata["ahead_block"] = "gated";
    CHECK(contains(refusal(unknown, target, open_heads_part),
                   "metadata \"ahead_block\" is \"gated\", known are"));
    SafetensorsBuilder late = medusa_of(target, 2, kTokens, "");
    late.metadata["norm_first"] = "0";
    CHECK(contains(refusal(late, target, open_heads_part), "metadata \"norm_first\" is \"0\""));
}

}  // namespace
}  // namespace paceline
