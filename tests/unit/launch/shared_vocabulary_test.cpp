// Draft pairs: which vocabularies are the same, how much of them is shared, and what a refusal
// names.
#include "launch/load/shared_vocabulary.hpp"

#include <utility>

#include <doctest/doctest.h>

#include "launch/load/draft_backend.hpp"
#include "tests/unit/huggingface/folder_copy.hpp"
#include "tests/unit/weights/gguf_builder.hpp"
#include "tests/unit/weights/safetensors_builder.hpp"

namespace paceline {
namespace {

using testing::contains;
using testing::folder_fixture;
using testing::FolderCopy;

/// tokens 0 to 2 are control tokens, 3 to 258 bytes, the rest is padding.
constexpr int kUsed = 259;

struct Model {
    std::vector<std::string> texts;
    std::vector<std::int32_t> kinds;
};

Model tokens(int rows) {
    Model model{{"<|endoftext|>", "<|im_start|>", "<|im_end|>"}, {3, 3, 3}};
    for (int byte = 0; byte < 256; ++byte) {
        model.texts.push_back(test::detail::byte_letter(byte));
        model.kinds.push_back(1);
    }
    while (static_cast<int>(model.texts.size()) < rows) {
        model.texts.push_back("[PAD" + std::to_string(model.texts.size()) + "]");
        model.kinds.push_back(5);
    }
    return model;
}

class Files {
public:
    ModelFile open(const std::string& name, const Model& model) {
        test::TinyModel shape;
        shape.vocab_size = static_cast<int>(model.texts.size());
        test::GgufBuilder builder = test::tiny_model(shape);
        builder.set_texts("tokenizer.ggml.tokens", model.texts);
        builder.set_ints("tokenizer.ggml.token_type", model.kinds);
        const std::string path = (folder_.path() / (name + ".gguf")).string();
        test::write_file(path, builder.bytes());
        Result<ModelFile> file = ModelFile::open(path);
        REQUIRE_MESSAGE(file.ok(), (file.ok() ? "" : file.error().what));
        return std::move(file).value();
    }

private:
    test::TestFolder folder_;
};

int shared(const ModelFile& draft, const ModelFile& target) {
    const Result<int> count = shared_vocabulary(draft, target);
    REQUIRE_MESSAGE(count.ok(), (count.ok() ? "" : count.error().what));
    return count.value();
}

std::string refusal(const ModelFile& draft, const ModelFile& target) {
    const Result<int> count = shared_vocabulary(draft, target);
    REQUIRE_FALSE(count.ok());
    CHECK(count.error().code == Errc::BadArgument);
    return count.error().what;
}

}  // namespace

TEST_CASE("padding rows of either model do not count, whatever their number and their texts") {
    Files files;
    Model other = tokens(300);
    for (std::size_t id = kUsed; id < 300; ++id) other.texts[id] = "<unused>" + std::to_string(id);
    const ModelFile small = files.open("small", tokens(kUsed));
    const ModelFile padded = files.open("padded", tokens(320));
    const ModelFile named = files.open("named", other);
    for (const ModelFile* draft : {&small, &padded, &named}) {
        for (const ModelFile* target : {&small, &padded, &named})
            CHECK(shared(*draft, *target) == kUsed);
    }
}

TEST_CASE(
    "tokens that only one model has may follow the shared ones, also in the other's padding") {
    Files files;
    Model more = tokens(320);
    for (std::size_t id = kUsed; id < 264; ++id) {
        more.texts[id] = "<|extra_" + std::to_string(id) + "|>";
        more.kinds[id] = 4;
    }
    const ModelFile extended = files.open("extended", more);
    const ModelFile padded = files.open("padded", tokens(288));
    CHECK(shared(extended, padded) == kUsed);
    CHECK(shared(padded, extended) == kUsed);
    CHECK(shared(extended, extended) == 264);
}

TEST_CASE(
    "the first differences are named with id and both texts, and where the target has the text") {
    Files files;
    Model changed = tokens(kUsed);
    std::swap(changed.texts[1], changed.texts[2]);
    changed.texts[63] = "xyz";
    changed.texts[64] = "\x1b[2J";
    const ModelFile draft = files.open("draft", changed);
    const ModelFile target = files.open("target", tokens(kUsed));
    const std::string said = refusal(draft, target);
    CHECK(contains(said, "draft.gguf does not fit "));
    CHECK(contains(said,
                   "target.gguf: 4 of 259 tokens differ, first: token 1 is '<|im_end|>', the "
                   "target's is '<|im_start|>' ('<|im_end|>' is the target's token 2); token 2 "
                   "is '<|im_start|>', the target's is '<|im_end|>'; token 63 is 'xyz', the "
                   "target's is '<'"));
    CHECK_FALSE(contains(said, "token 64"));
    CHECK_FALSE(contains(said, "\x1b"));
}

TEST_CASE("an added token and an ordinary one of the same text are two things") {
    Files files;
    Model changed = tokens(kUsed);
    changed.texts[0] = "<think>";  // no name that makes it a control token whatever its type is
    const ModelFile target = files.open("target", changed);
    changed.kinds[0] = 1;
    const ModelFile draft = files.open("draft", changed);
    CHECK(contains(refusal(draft, target),
                   "1 of 259 tokens differ: token 0, '<think>', is an ordinary token, the "
                   "target's is an added one"));
    changed.kinds[0] = 4;  // of the user: a converter writes control tokens for those that look so
    CHECK(shared(files.open("user", changed), target) == kUsed);
    changed.kinds[73] = 5;
    CHECK(contains(refusal(files.open("hole", changed), target),
                   "token 73 is unused, the target's is 'F'"));
}

TEST_CASE("of a user's token a space and U+2581 are the same, of others they are not") {
    Files files;
    const auto with = [&](const char* name, const char* text, std::int32_t kind) {
        Model model = tokens(kUsed);
        model.texts[70] = text;
        model.kinds[70] = kind;
        return files.open(name, model);
    };
    const ModelFile spaces = with("spaces", "  x", 4), pieces = with("pieces", "\u2581\u2581x", 4);
    CHECK(shared(spaces, pieces) == kUsed);
    CHECK(shared(pieces, spaces) == kUsed);
    CHECK(shared(with("control", "\u2581\u2581x", 3), spaces) == kUsed);
    CHECK(contains(refusal(with("other", "\u2581x", 4), spaces), "token 70 is "));
    CHECK(contains(refusal(with("plain", "\u2581\u2581x", 1), with("plain-spaces", "  x", 1)),
                   "token 70 is "));
}

TEST_CASE("a folder and a GGUF file of the same tokens are a pair, in both directions") {
    const std::string name = "llama-untied-f16";
    const ModelFile gguf =
        ModelFile::open(testing::fixtures() + "/models/" + name + ".gguf").value();
    // The folder has two added tokens where the file has its last merges.
    const FolderCopy copy(name);
    CHECK(contains(refusal(copy.opened(), gguf), "2 of 320 tokens differ: token 318 is '<tool>'"));
    nlohmann::json document = copy.json("tokenizer.json");
    document["added_tokens"].erase(document["added_tokens"].begin() + 3,
                                   document["added_tokens"].end());
    for (const int id : {318, 319})
        document["model"]["vocab"][gguf.tokenizer().tokens[static_cast<std::size_t>(id)]] = id;
    copy.write("tokenizer.json", document.dump());
    const ModelFile folder = copy.opened();
    CHECK(shared(folder, gguf) == 320);
    CHECK(shared(gguf, folder) == 320);
    CpuOptions options;
    options.kv_slots = 64;
    DraftConfig draft;
    draft.model = DraftModelKind::File;
    const DraftBackend plan =
        plan_draft_backend(draft, {.draft = folder.path()}, gguf, options).value();
    CHECK(plan.shared_tokens == 320);
}

TEST_CASE("a file without known tokens is no part of a pair, and the reason is said") {
    const ModelFile target = ModelFile::open(folder_fixture("llama3-bf16")).value();
    const FolderCopy without("llama3-bf16");
    without.remove("tokenizer.json");
    const ModelFile draft = without.opened();
    CHECK(contains(refusal(draft, target), "the folder has no tokenizer.json"));
    CHECK(contains(refusal(target, draft), "the folder has no tokenizer.json"));
}

}  // namespace paceline
