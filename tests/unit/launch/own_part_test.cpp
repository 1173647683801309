// Methods that are made for a part of their own: `--method auto` and `paceline plan` leave them out
// where it is not there, because another method decodes in their place then.
#include <string>

#include <doctest/doctest.h>

#include "launch/config/methods.hpp"
#include "launch/placement/method_fit.hpp"
#include "tests/support/fixture_model.hpp"
#include "tests/unit/weights/safetensors_builder.hpp"

using namespace paceline;        // NOLINT(google-build-using-namespace): a test file
using namespace paceline::test;  // NOLINT(google-build-using-namespace): test helpers
using paceline::testing::open_fixture;

namespace {

const std::vector<TokenId> kOfParts{0, 3, 4, 200, 319};

}  // namespace

TEST_CASE("a method lacks its own part until that is found") {
    const TestFolder folder;
    const ModelFile target = open_fixture("tiny-chat");
    const PartsSearch found{.option = {}, .folders = {folder.path().string()}};
    const auto lacks = [&](const std::string& method) {
        return lacks_own_part(method, target, found);
    };
    for (const char* method : {"medusa", "kangaroo", "eagle2", "pearl-eagle", "fold-eagle", "rest"})
        CHECK_MESSAGE(lacks(method), method);
    // These have no part of their own: stand-ins, or other trained parts, are the same method.
    for (const char* method : {"prompt-lookup+draft", "heads", "layerskip", "fold", "pearl"})
        CHECK_MESSAGE(!lacks(method), method);
    medusa_of(target, 5, kOfParts, "0 1 0.0 0.1").write(folder.path() / "medusa.safetensors");
    CHECK_FALSE(lacks("medusa"));
    CHECK(lacks("kangaroo"));
    adapter_of(target, 1, kOfParts).write(folder.path() / "adapter.safetensors");
    CHECK_FALSE(lacks("kangaroo"));
    CHECK(lacks("eagle2"));
    eagle_of(target, kOfParts).write(folder.path() / "eagle.safetensors");
    for (const char* method : {"eagle2", "pearl-eagle", "fold-eagle"})
        CHECK_MESSAGE(!lacks(method), method);
    // A file names REST's store; the method alone never has one.
    CHECK(lacks("rest"));
    CHECK(lacks_own_part("medusa", target, {.option = kNoParts, .folders = {}}));
}

TEST_CASE("a method whose part cannot be used for a target lacks it") {
    const TestFolder folder;
    const ModelFile target = open_fixture("tiny-chat");
    eagle_of(target, kOfParts, {1, 2}).write(folder.path() / "eagle.safetensors");
    const PartsSearch found{.option = {}, .folders = {folder.path().string()}};
    CHECK_FALSE(lacks_own_part("pearl-eagle", target, found));
    CHECK(lacks_own_part("fold-eagle", target, found));  // states of layers in two segments
    CHECK(lacks_own_part("no-such-method", target, found));
}
