// Files on disk: what can be opened, what cannot, and what an open one tells.
#include "model/weights/model_file.hpp"

#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

#include "model/weights/safetensors_file.hpp"
#include "tests/support/test_folder.hpp"
#include "tests/unit/weights/expectations.hpp"

namespace paceline {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace): test helpers in a test file

void expect_not_opened(const std::string& path, std::string_view word) {
    const Result<ModelFile> file = ModelFile::open(path);
    REQUIRE_FALSE(file.ok());
    CAPTURE(file.error().what);
    CHECK(file.error().code == Errc::BadFile);
    CHECK(file.error().what.find(path) != std::string::npos);
    CHECK(file.error().what.find(word) != std::string::npos);
}

ModelFile open_valid(const std::string& path) {
    Result<ModelFile> file = ModelFile::open(path);
    if (!file) FAIL(file.error().what);
    return std::move(file).value();
}

TEST_CASE("a path that leads nowhere, to a directory, to a FIFO or to nothing is refused clearly") {
    const TestFolder dir;
    expect_not_opened(dir.path("absent.gguf"), "No such file");
    expect_not_opened(dir.path("."), "is a directory");
    write_file(dir.path("empty.gguf"), {});
    expect_not_opened(dir.path("empty.gguf"), "empty");
    expect_not_opened(dir.path("empty.gguf/inside"), "Not a directory");
    REQUIRE(::mkfifo(dir.path("fifo").c_str(), 0600) == 0);
    expect_not_opened(dir.path("fifo"), "not a regular file");
}

TEST_CASE("a pointer of Git LFS is named as that, as a whole model and as a shard") {
    const TestFolder dir;
    Bytes pointer;
    append_raw(pointer, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1000000\n");
    write_file(dir.path("model.gguf"), pointer);
    expect_not_opened(dir.path("model.gguf"), "git lfs pull");
    write_file(dir.path("model-00001-of-00002.gguf"), tiny_model().bytes());
    write_file(dir.path("model-00002-of-00002.gguf"), pointer);
    const Result<ModelFile> split = ModelFile::open(dir.path("model-00001-of-00002.gguf"));
    REQUIRE_FALSE(split.ok());
    CHECK(split.error().what.find("model-00002-of-00002.gguf is a pointer of Git LFS") !=
          std::string::npos);
    // The same opens LoRAs, drafts, heads, adapters and probes.
    write_file(dir.path("part.safetensors"), pointer);
    const Result<SafetensorsFile> part = SafetensorsFile::open(dir.path("part.safetensors"));
    REQUIRE_FALSE(part.ok());
    CHECK(part.error().what.find("git lfs pull") != std::string::npos);
}

TEST_CASE("a file of a folder that is named in its place says to name the folder") {
    const TestFolder dir;
    Bytes text;
    append_raw(text, "{}\n");
    write_file(dir.path("config.json"), text);
    for (const char* name : {"config.json", "model.safetensors", "tokenizer.json",
                             "model.safetensors.index.json", "pytorch_model.bin"}) {
        write_file(dir.path(name), text);
        expect_not_opened(dir.path(name), "name the folder: ");
    }
    // A GGUF file may lie beside them.
    write_file(dir.path("tiny.gguf"), tiny_model().bytes());
    CHECK(open_valid(dir.path("tiny.gguf")).config().layers == 2);
    const Bytes whole = tiny_model().bytes();
    write_file(dir.path("cut.gguf"), {whole.begin(), whole.begin() + 100});
    expect_not_opened(dir.path("cut.gguf"), "tensor count");
}

TEST_CASE("a file without read permission is refused clearly") {
    if (::geteuid() == 0) return;  // root may read everything
    const TestFolder dir;
    write_file(dir.path("secret.gguf"), tiny_model().bytes());
    REQUIRE(::chmod(dir.path("secret.gguf").c_str(), 0) == 0);
    expect_not_opened(dir.path("secret.gguf"), "Permission denied");
}

TEST_CASE("a truncated file on disk is refused and leaves no descriptor behind") {
    const TestFolder dir;
    Bytes bytes = tiny_model().bytes();
    bytes.resize(bytes.size() / 2);
    write_file(dir.path("half.gguf"), bytes);
    const int before = ::dup(0);
    ::close(before);
    for (int i = 0; i < 10; ++i) expect_not_opened(dir.path("half.gguf"), "truncated");
    const int after = ::dup(0);
    ::close(after);
    CHECK(before == after);
}

TEST_CASE("an open model tells its tensors, and they hold the numbers of the file") {
    const TestFolder dir;
    GgufBuilder builder = tiny_model();
    write_file(dir.path("tiny.gguf"), builder.bytes());
    const ModelFile model = open_valid(dir.path("tiny.gguf"));
    CHECK(model.path() == dir.path("tiny.gguf"));
    CHECK(model.format() == "GGUF v3");
    CHECK(model.file_bytes() == builder.bytes().size());
    CHECK(model.tensors().size() == builder.tensors.size());
    CHECK(model.tensors()[0].name == "token_embd.weight");
    CHECK(model.output_head().data == model.embedding().data);  // tied
    CHECK(model.output_norm().cols == 64);
    CHECK(model.layer(1).gate.rows == 96);
    for (const TensorView& tensor : model.tensors()) {
        const Bytes& wanted = builder.tensor(tensor.name).data;
        REQUIRE(tensor.bytes == wanted.size());
        CHECK(std::equal(wanted.begin(), wanted.end(), tensor.data));
    }
}

TEST_CASE("a moved model keeps its tensors where they are") {
    const TestFolder dir;
    write_file(dir.path("tiny.gguf"), tiny_model().bytes());
    ModelFile first = open_valid(dir.path("tiny.gguf"));
    const std::byte* data = first.layer(0).q.data;
    ModelFile second = std::move(first);
    CHECK(second.layer(0).q.data == data);
    first = open_valid(dir.path("tiny.gguf"));
    second = std::move(first);
    CHECK(second.config().layers == 2);
}

TEST_CASE("released weights read the same again") {
    const TestFolder dir;
    TinyModel tiny;
    tiny.vocab_size = 2000;  // an embedding of many pages
    write_file(dir.path("tiny.gguf"), tiny_model(tiny).bytes());
    const ModelFile model = open_valid(dir.path("tiny.gguf"));
    const TensorView& embedding = model.embedding();
    const Bytes before(embedding.data, embedding.data + embedding.bytes);
    model.release(embedding);
    model.release(model.output_norm());  // less than a page: nothing to drop
    CHECK(std::equal(before.begin(), before.end(), embedding.data));
}

TEST_CASE("a file that changes while it is open is noticed") {
    const TestFolder dir;
    Bytes bytes = tiny_model().bytes();
    write_file(dir.path("tiny.gguf"), bytes);
    const ModelFile model = open_valid(dir.path("tiny.gguf"));
    CHECK(model.check_unchanged().ok());
    bytes.push_back(std::byte{0});
    write_file(dir.path("tiny.gguf"), bytes);
    const Status changed = model.check_unchanged();
    REQUIRE_FALSE(changed.ok());
    CHECK(changed.error().what.find("changed while it was in use") != std::string::npos);
}

TEST_CASE("the fingerprint is equal for equal files and differs with key, name or weight") {
    const TestFolder dir;
    const auto fingerprint = [&](const GgufBuilder& builder) {
        write_file(dir.path("tiny.gguf"), builder.bytes());
        return open_valid(dir.path("tiny.gguf")).fingerprint();
    };
    const std::uint64_t original = fingerprint(tiny_model());
    CHECK(fingerprint(tiny_model()) == original);
    GgufBuilder builder = tiny_model();
    builder.set_f32("llama.rope.freq_base", 10001.0F);
    CHECK(fingerprint(builder) != original);
    builder = tiny_model();
    builder.tensor("blk.1.ffn_down.weight").data.back() ^= std::byte{1};
    CHECK(fingerprint(builder) != original);
    builder = tiny_model();
    std::swap(builder.tensor("blk.0.attn_k.weight").data,
              builder.tensor("blk.0.attn_v.weight").data);
    CHECK(fingerprint(builder) != original);
}

}  // namespace
}  // namespace paceline
