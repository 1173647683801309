// The Hugging Face cache: which names refer to a model in it, and which folders are accepted.
#include "launch/base/hub_cache.hpp"

#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>

#include "launch/base/model_options.hpp"
#include "tests/support/test_folder.hpp"

namespace paceline {
namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "owner/tiny-model";

/// A cache with one model of one file, as the library of the hub lays it out.
class Hub {
public:
    Hub() {
        fs::create_directories(model() / "refs");
        fs::create_directories(model() / "blobs");
        fs::create_directories(model() / "snapshots" / "abc123");
        write(model() / "refs" / "main", "abc123");
        write(model() / "blobs" / "hash", "{}");
        fs::create_symlink("../../blobs/hash", snapshot() / "config.json");
    }
    [[nodiscard]] std::string path() const { return folder_.path().string(); }
    [[nodiscard]] fs::path model() const { return folder_.path() / "models--owner--tiny-model"; }
    [[nodiscard]] fs::path snapshot() const { return model() / "snapshots" / "abc123"; }
    static void write(const fs::path& path, const std::string& text) {
        std::ofstream(path) << text;
    }

private:
    test::TestFolder folder_;
};

std::string refusal(const Hub& hub) {
    const Result<std::optional<std::string>> found = find_in_hub(hub.path(), kName);
    REQUIRE_FALSE(found.ok());
    return found.error().what;
}

}  // namespace

TEST_CASE("a model of the hub's cache is found by its name, at the commit of refs/main") {
    const Hub hub;
    const Result<std::optional<std::string>> found = find_in_hub(hub.path(), kName);
    REQUIRE(found.ok());
    CHECK(found.value() == hub.snapshot().string());
    CHECK_FALSE(find_in_hub(hub.path(), "owner/other").value().has_value());
    CHECK_FALSE(find_in_hub("", kName).value().has_value());
}

TEST_CASE("names that could leave the cache's folder mean no model") {
    for (const char* name :
         {"../x", "a/../b", "/etc", "a/", "a/b/c", "a", "a/.b", "a--b/c", "-a/b", "a/b\n"}) {
        CAPTURE(name);
        CHECK_FALSE(is_hub_name(name));
    }
    CHECK(is_hub_name("HuggingFaceTB/SmolLM2-135M-Instruct"));
    CHECK(is_hub_name("Qwen/Qwen2.5-0.5B"));
}

TEST_CASE("a cache without the snapshot, or with links that lead out of it, is refused by name") {
    const Hub hub;
    Hub::write(hub.model() / "refs" / "main", "../../../etc");
    CHECK(refusal(hub).find("no snapshot") != std::string::npos);
    Hub::write(hub.model() / "refs" / "main", "def456");
    CHECK(refusal(hub).find("no snapshot") != std::string::npos);
    Hub::write(hub.model() / "refs" / "main", "abc123\n");
    CHECK(find_in_hub(hub.path(), kName).ok());
    fs::create_symlink("/etc/passwd", hub.snapshot() / "tokenizer.json");
    CHECK(refusal(hub).find("tokenizer.json is a link that leads out") != std::string::npos);
    fs::remove(hub.snapshot() / "tokenizer.json");
    fs::remove(hub.model() / "blobs" / "hash");
    CHECK(refusal(hub).find("to nothing") != std::string::npos);
}

TEST_CASE("-m takes a path that is there, then a name of the cache, and says what it looked for") {
    const Hub hub;
    Environment environment;
    environment.hub_cache = hub.path();
    const auto choose = [&](const std::string& model) {
        ModelOptions options;
        options.model = model;
        return choose_model(options, environment);
    };
    CHECK(choose(kName).value() == hub.snapshot().string());
    CHECK(choose(hub.path()).value() == hub.path());
    CHECK(choose("models/a.gguf").value() == "models/a.gguf");
    const Result<std::string> missing = choose("owner/other");
    REQUIRE_FALSE(missing.ok());
    CHECK(missing.error().what.find("hf download owner/other") != std::string::npos);
}

}  // namespace paceline
