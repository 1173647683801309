// The models of tests/fixtures/models, by name: "tiny-chat", "llama-q4_1", ...
#pragma once

#include <string>
#include <utility>

#include <doctest/doctest.h>

#include "model/weights/model_file.hpp"
#include "tests/support/source_tree.hpp"

namespace paceline::testing {

inline ModelFile open_fixture(const std::string& name) {
    Result<ModelFile> file = ModelFile::open(fixtures() + "/models/" + name + ".gguf");
    REQUIRE_MESSAGE(file.ok(), name);
    return std::move(file).value();
}

}  // namespace paceline::testing
