// Split models: opened from any of their files, and each disagreement named with the file.
#include "model/weights/gguf/gguf_shards.hpp"

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/unit/weights/expectations.hpp"
#include "tests/unit/weights/safetensors_builder.hpp"

namespace paceline {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace): test helpers in a test file

constexpr std::uint16_t kCount = 3;

void set_u16(GgufBuilder& builder, const std::string& name, std::uint16_t value) {
    Bytes raw;
    append(raw, value);
    builder.set(name, 2, std::move(raw));
}

/// The model in three files as llama-gguf-split makes them: no tensors in the first.
std::vector<GgufBuilder> split_model() {
    const GgufBuilder whole = tiny_model();
    std::vector<GgufBuilder> shards(kCount);
    shards[0].keys = whole.keys;
    for (std::size_t t = 0; t < whole.tensors.size(); ++t)
        shards[1 + t % 2].tensors.push_back(whole.tensors[t]);
    for (std::uint16_t i = 0; i < kCount; ++i) {
        set_u16(shards[i], "split.no", i);
        set_u16(shards[i], "split.count", kCount);
        shards[i].set_i32("split.tensors.count", static_cast<std::int32_t>(whole.tensors.size()));
    }
    return shards;
}

/// The files of a split model in a folder of their own.
class SplitFiles {
public:
    explicit SplitFiles(const std::vector<GgufBuilder>& shards) {
        for (std::size_t i = 0; i < shards.size(); ++i)
            write_file(path(static_cast<int>(i) + 1), shards[i].bytes());
    }
    [[nodiscard]] std::string path(int number) const {
        return GgufShardName{(folder_.path() / "tiny").string(), number, kCount}.path(number);
    }

private:
    TestFolder folder_;
};

void expect_refused(const std::vector<GgufBuilder>& shards,
                    int named,
                    Errc code,
                    std::initializer_list<std::string_view> words) {
    const SplitFiles files(shards);
    const Result<ModelFile> opened = ModelFile::open(files.path(2));
    REQUIRE_FALSE(opened.ok());
    CAPTURE(opened.error().what);
    CHECK(opened.error().code == code);
    CHECK(opened.error().what.starts_with(files.path(named)));
    for (const std::string_view word : words) {
        CAPTURE(word);
        CHECK(opened.error().what.find(word) != std::string::npos);
    }
}

TEST_CASE("a split model is opened from any of its files and is the model in one file") {
    const SplitFiles files(split_model());
    const TestFolder folder;
    const std::string path = (folder.path() / "whole.gguf").string();
    write_file(path, tiny_model().bytes());
    const ModelFile whole = ModelFile::open(path).value();
    std::uint64_t fingerprint = 0;
    for (int number = 1; number <= kCount; ++number) {
        CAPTURE(number);
        Result<ModelFile> opened = ModelFile::open(files.path(number));
        if (!opened) FAIL(opened.error().what);
        const ModelFile& model = opened.value();
        CHECK(model.path() == files.path(1));
        CHECK(model.format() == "GGUF v3, 3 shards");
        CHECK(model.check_unchanged().ok());
        REQUIRE(model.tensors().size() == whole.tensors().size());
        CHECK(model.tokenizer().tokens == whole.tokenizer().tokens);
        for (int l = 0; l < whole.config().layers; ++l) {
            const TensorView& got = model.layer(l).down;
            const TensorView& want = whole.layer(l).down;
            REQUIRE(got.bytes == want.bytes);
            CHECK(std::memcmp(got.data, want.data, got.bytes) == 0);
            model.release(got);
        }
        if (number == 1) fingerprint = model.fingerprint();
        CHECK(model.fingerprint() == fingerprint);
    }
    CHECK(fingerprint != whole.fingerprint());
}

TEST_CASE("the fingerprint of a split model sees every file's header") {
    std::vector<GgufBuilder> shards = split_model();
    const SplitFiles files(shards);
    shards[2].set_u32("general.quantization_version", 2);
    const SplitFiles changed(shards);
    CHECK(ModelFile::open(files.path(1)).value().fingerprint() !=
          ModelFile::open(changed.path(1)).value().fingerprint());
}

TEST_CASE("a missing shard is named") {
    const SplitFiles files(split_model());
    std::filesystem::remove(files.path(3));
    const Result<ModelFile> opened = ModelFile::open(files.path(1));
    REQUIRE_FALSE(opened.ok());
    CHECK(opened.error().code == Errc::BadFile);
    CHECK(opened.error().what.find("shard 3 of 3") != std::string::npos);
    CHECK(opened.error().what.find(files.path(3)) != std::string::npos);
}

TEST_CASE("shards whose names were mixed up are refused by file") {
    std::vector<GgufBuilder> shards = split_model();
    std::swap(shards[1], shards[2]);
    expect_refused(shards, 2, Errc::BadFile, {"split.no is 2", "shard 2 of 3"});
}

TEST_CASE("shards that count differently are refused by file") {
    std::vector<GgufBuilder> shards = split_model();
    set_u16(shards[2], "split.count", 4);
    expect_refused(shards, 3, Errc::BadFile, {"split.count is 4", "3 shards"});
    shards = split_model();
    shards[1].remove_key("split.no");
    expect_refused(shards, 2, Errc::BadFile, {"split.no"});
    shards = split_model();
    shards[2].set_i32("split.tensors.count", 99);
    expect_refused(shards, 3, Errc::BadFile, {"split.tensors.count is 99"});
    shards = split_model();
    shards[2].set_i32("split.tensors.count", -1);
    expect_refused(shards, 3, Errc::BadFile, {"split.tensors.count is -1"});
    shards = split_model();
    shards[0].set_text("split.no", "0");
    expect_refused(shards, 1, Errc::BadFile, {"split.no"});
}

TEST_CASE("a tensor in two shards is refused with both files") {
    std::vector<GgufBuilder> shards = split_model();
    shards[2].tensors.push_back(shards[1].tensors[0]);
    expect_refused(shards, 3, Errc::BadFile, {shards[1].tensors[0].name, "00002-of-00003"});
}

TEST_CASE("shards with an alignment of their own are refused") {
    std::vector<GgufBuilder> shards = split_model();
    shards[0].set_u32("general.alignment", 64);
    shards[0].alignment = 64;
    expect_refused(shards, 1, Errc::Unsupported, {"general.alignment is 64"});
}

TEST_CASE("a shard under another name is refused with the name that it needs") {
    const std::vector<GgufBuilder> shards = split_model();
    const TestFolder folder;
    const std::string path = (folder.path() / "part.gguf").string();
    write_file(path, shards[1].bytes());
    Result<ModelFile> opened = ModelFile::open(path);
    REQUIRE_FALSE(opened.ok());
    CHECK(opened.error().what.find("shard 2 of 3") != std::string::npos);
    CHECK(opened.error().what.find("-00002-of-00003.gguf") != std::string::npos);

    GgufBuilder alone = tiny_model();
    set_u16(alone, "split.count", 1);
    CHECK(read_bytes(alone.bytes()).ok());
}

TEST_CASE("names of shards are read, and others are none") {
    const auto name = parse_shard_name("/models/a-b-00002-of-00010.gguf");
    REQUIRE(name.has_value());
    CHECK(name->prefix == "/models/a-b");
    CHECK(name->number == 2);
    CHECK(name->count == 10);
    CHECK(name->path(7) == "/models/a-b-00007-of-00010.gguf");
    for (const char* other :
         {"model.gguf", "-00001-of-00002.gguf", "a-00000-of-00002.gguf", "a-00003-of-00002.gguf",
          "a-0001-of-0002.gguf", "a-00001-of-00002.bin", "a-0000x-of-00002.gguf",
          "a-+0001-of-00002.gguf", "a_00001-of-00002.gguf"}) {
        CAPTURE(other);
        CHECK_FALSE(parse_shard_name(other).has_value());
    }
}

TEST_CASE("a truncated or changed byte in any shard never crashes the reader") {
    std::vector<GgufBuilder> shards = split_model();
    std::vector<Bytes> files;
    for (const GgufBuilder& shard : shards) files.push_back(shard.bytes());
    detail::Random random(31);
    for (int i = 0; i < 3000; ++i) {
        std::vector<Bytes> mutants = files;
        Bytes& mutant = mutants[random.bits() % kCount];
        if (i % 3 == 0) {
            mutant.resize(random.bits() % mutant.size());
        } else {
            mutant[random.bits() % std::min<std::size_t>(mutant.size(), 4096)] =
                static_cast<std::byte>(random.bits() & 0xFFU);
        }
        std::vector<ExactBytes> exact;
        for (const Bytes& bytes : mutants) exact.emplace_back(bytes);
        std::vector<GgufBytes> views;
        for (const ExactBytes& bytes : exact) views.push_back({bytes.span(), "shard.gguf"});
        const Result<ModelParts> parts = read_gguf_shards(views);
        if (!parts) CHECK_FALSE(parts.error().what.empty());
    }
}

}  // namespace
}  // namespace paceline
