// Folders that were cut, mixed up or made to mislead: refused, naming file, field and value.
#include <doctest/doctest.h>

#include "tests/unit/huggingface/folder_copy.hpp"

namespace paceline::testing {
namespace {

constexpr const char* kIndex = "model.safetensors.index.json";

/// A list, also of one: braces alone may mean its element.
nlohmann::json list(nlohmann::json::initializer_list_t elements) {
    return nlohmann::json::array(elements);
}

void check_refused(const FolderCopy& copy, Errc code, const std::string& part) {
    const Error error = copy.refused();
    CAPTURE(error.what);
    CHECK(error.code == code);
    CHECK(contains(error.what, part));
    CHECK(contains(error.what, copy.path()));
}

}  // namespace

TEST_CASE("a folder without config.json or weights says what is missing") {
    const FolderCopy copy("llama-dynamic-f32");
    copy.remove("model.safetensors");
    check_refused(copy, Errc::BadFile,
                  "has neither model.safetensors nor model.safetensors.index.json");
    copy.write("pytorch_model.bin", "pickle");
    check_refused(copy, Errc::Unsupported, "pytorch_model.bin");
    copy.remove("config.json");
    check_refused(copy, Errc::BadFile, "is a directory without config.json");
}

TEST_CASE("JSON that is cut, deep or of two minds is refused") {
    const FolderCopy copy("llama-dynamic-f32");
    const std::string whole = text_of(copy.file("config.json"));
    for (std::size_t bytes = 0; bytes + 3 < whole.size(); ++bytes) {
        copy.write("config.json", whole.substr(0, bytes));
        CHECK(copy.refused().code == Errc::BadFile);
    }
    copy.write("config.json", "[]");
    check_refused(copy, Errc::BadFile, "no JSON object");
    copy.write("config.json", R"({"a": 1, "a": 2})");
    check_refused(copy, Errc::BadFile, "the key \"a\" twice");
    copy.write("config.json", R"({"a": )" + std::string(100'000, '[') + "}");
    check_refused(copy, Errc::BadFile, "nested more than");
    copy.write("config.json", "{\"a\": \"\xff\"}");
    check_refused(copy, Errc::BadFile, "is not JSON");
    copy.write("config.json", std::string(std::size_t{17} << 20U, ' '));
    check_refused(copy, Errc::BadFile, "at most 16777216 are read");
}

TEST_CASE("an index may name only safetensors files beside it, and what is in them") {
    const FolderCopy copy("llama3-bf16");
    const nlohmann::json whole = copy.json(kIndex);
    const auto with = [&](const char* tensor, const nlohmann::json& file) {
        nlohmann::json index = whole;
        index["weight_map"][tensor] = file;
        copy.write(kIndex, index.dump());
    };
    for (const char* name : {"../model.safetensors", "/etc/passwd", "a/b.safetensors",
                             ".safetensors", ".a.safetensors", "config.json", ""}) {
        CAPTURE(name);
        with("model.norm.weight", name);
        check_refused(copy, Errc::BadFile, "which names no safetensors file beside it");
    }
    with("model.norm.weight", 7);
    check_refused(copy, Errc::BadFile, "in 7");
    with("model.norm.weight", "missing.safetensors");
    check_refused(copy, Errc::BadFile, "missing.safetensors");
    with("model.other.weight", "model-00001-of-00003.safetensors");
    check_refused(copy, Errc::BadFile,
                  "\"model.other.weight\" in model-00001-of-00003.safetensors, where it is not");
    copy.write(kIndex, R"({"weight_map": {}})");
    check_refused(copy, Errc::BadFile, "weight_map is missing, empty or no object");
    copy.write(kIndex, whole.dump());
    std::filesystem::copy(copy.file("model-00001-of-00003.safetensors"),
                          copy.file("twice.safetensors"));
    with("model.twice.weight", "twice.safetensors");
    check_refused(copy, Errc::BadFile, "twice.safetensors");
}

TEST_CASE("a tensor that is cut, of another type or shape, missing or left over is named") {
    const FolderCopy copy("llama-dynamic-f32");
    const std::string whole = text_of(copy.file("model.safetensors"));
    const auto with = [&](std::string from, const std::string& to) {
        std::string text = whole;
        const std::size_t at = text.find(from);
        REQUIRE(at != text.npos);
        REQUIRE(from.size() == to.size());
        copy.write("model.safetensors", text.replace(at, from.size(), to));
    };
    copy.write("model.safetensors", whole.substr(0, whole.size() - 1));
    check_refused(copy, Errc::BadFile, "truncated");
    with("model.norm.weight", "model.morn.weight");
    check_refused(copy, Errc::BadFile, "\"model.norm.weight\" is missing");
    with("\"model.norm.weight\":{\"dtype\":\"F32\"", "\"model.norm.weight\":{\"dtype\":\"I32\"");
    check_refused(copy, Errc::Unsupported, "(I32 [32]) has a dtype that is not supported");
    copy.write("model.safetensors", whole);
    copy.patch("config.json", {{"intermediate_size", 64}});
    check_refused(copy, Errc::BadFile, "config.json demands, [64, 32]");
    copy.patch("config.json", {{"intermediate_size", 48}, {"num_hidden_layers", 1}});
    check_refused(copy, Errc::Unsupported, "has no place in this architecture");
}

TEST_CASE("a norm that is not finite is named with its place") {
    const FolderCopy copy("llama-dynamic-f32");
    std::string text = text_of(copy.file("model.safetensors"));
    std::uint64_t length = 0;
    std::memcpy(&length, text.data(), sizeof length);
    const nlohmann::json header = nlohmann::json::parse(text.substr(8, length));
    const auto at = header.at("model.norm.weight").at("data_offsets").at(0).get<std::size_t>();
    const float bad = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(text.data() + 8 + length + at + 12, &bad, sizeof bad);
    copy.write("model.safetensors", text);
    check_refused(copy, Errc::BadFile, "\"model.norm.weight\" holds nan at 3");
}

TEST_CASE("a tokenizer that contradicts itself or the model is refused") {
    const auto with = [](const nlohmann::json& patch, const std::string& part) {
        const FolderCopy copy("llama3-bf16");
        copy.patch("tokenizer.json", patch);
        check_refused(copy, Errc::BadFile, part);
    };
    with({{"model", {{"vocab", {{"a", 320}}}}}}, "has the id 320, the model has 320 tokens");
    with({{"model", {{"vocab", {{"a", -1}}}}}}, "has the id -1");
    with({{"model", {{"vocab", {{"a", 18446744073709551615ULL}}}}}}, "has the id -1");
    with({{"model", {{"vocab", {{"a", 1.5}}}}}}, "has the id 1.5");
    with({{"model", {{"vocab", {{"zzz", 5}}}}}}, "has the id 5, and so has");
    with({{"model", {{"vocab", nullptr}}}}, "model.vocab is missing");
    with({{"model", {{"merges", nlohmann::json::array()}}}}, "model.merges is missing, empty");
    with({{"model", {{"merges", list({"a b c"})}}}},
         "model.merges[0] is \"a b c\": not two tokens");
    with({{"model", {{"merges", list({list({"a", "never"})})}}}}, "the vocabulary lacks a part");
    with({{"model", {{"merges", list({7})}}}}, "model.merges[0] is 7");
    with({{"added_tokens", list({{{"id", 4}, {"content", "<tool>"}}})}},
         "has the id 4, and so has");
    with({{"added_tokens", list({{{"content", "<x>"}}})}}, "has no id or no content");
    with({{"added_tokens", list({1})}}, "added_tokens[0] is no object");
    const FolderCopy copy("llama3-bf16");
    copy.patch("generation_config.json", {{"eos_token_id", "two"}});
    check_refused(copy, Errc::BadFile, "eos_token_id \"two\"");
    copy.patch("generation_config.json", {{"eos_token_id", 2}, {"temperature", "hot"}});
    check_refused(copy, Errc::BadFile, "temperature is \"hot\"; it must be a number");
}

TEST_CASE("a pointer of Git LFS in place of any file of a folder is named as that") {
    for (const char* name :
         {"config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json",
          "model.safetensors.index.json", "model-00002-of-00003.safetensors"}) {
        const FolderCopy copy("llama3-bf16");
        REQUIRE(std::filesystem::exists(copy.file(name)));
        copy.write(name, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n");
        check_refused(copy, Errc::BadFile, std::string{name} + " is a pointer of Git LFS");
        check_refused(copy, Errc::BadFile, "git lfs pull");
    }
    const FolderCopy copy("llama3-bf16");
    copy.write("chat_template.jinja", "version https://git-lfs.github.com/spec/v1\n");
    check_refused(copy, Errc::BadFile, "chat_template.jinja is a pointer of Git LFS");
}

}  // namespace paceline::testing
