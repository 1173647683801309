// A copy of a fixture of tests/fixtures/folders whose files a test may change.
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "model/weights/model_file.hpp"
#include "tests/support/source_tree.hpp"
#include "tests/unit/weights/safetensors_builder.hpp"

namespace paceline::testing {

inline std::string folder_fixture(const std::string& name) {
    return fixtures() + "/folders/" + name;
}

inline std::string text_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    REQUIRE_MESSAGE(file.good(), path);
    return text.str();
}

class FolderCopy {
public:
    explicit FolderCopy(const std::string& fixture) {
        std::filesystem::copy(folder_fixture(fixture), folder_.path());
    }
    [[nodiscard]] std::string path() const { return folder_.path().string(); }
    [[nodiscard]] std::string file(const std::string& name) const { return path() + "/" + name; }
    void write(const std::string& name, const std::string& text) const {
        std::ofstream(file(name), std::ios::binary) << text;
    }
    void remove(const std::string& name) const { std::filesystem::remove(file(name)); }
    [[nodiscard]] nlohmann::json json(const std::string& name) const {
        return nlohmann::json::parse(text_of(file(name)));
    }
    /// Merges `patch` into a JSON file: null takes a key away.
    void patch(const std::string& name, const nlohmann::json& patch) const {
        nlohmann::json document = json(name);
        document.merge_patch(patch);
        write(name, document.dump());
    }
    [[nodiscard]] Result<ModelFile> open() const { return ModelFile::open(path()); }
    [[nodiscard]] ModelFile opened() const {
        Result<ModelFile> opened = open();
        REQUIRE_MESSAGE(opened.ok(), (opened.ok() ? "" : opened.error().what));
        return std::move(opened).value();
    }
    [[nodiscard]] Error refused() const {
        const Result<ModelFile> opened = open();
        REQUIRE_FALSE(opened.ok());
        return opened.error();
    }

private:
    test::TestFolder folder_;
};

inline bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != text.npos;
}

}  // namespace paceline::testing
