#include "launch/cluster/agent_models.hpp"

#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>

#include "launch/placement/stage_assignment.hpp"
#include "tests/support/test_folder.hpp"

using namespace paceline;

namespace {

namespace fs = std::filesystem;

struct Models {
    Models() {
        fs::create_directories(root / "models" / "deep");
        fs::create_directories(root / "other");
        for (const char* name : {"models/a.gguf", "models/deep/b.gguf", "other/c.gguf"})
            std::ofstream{root / name} << "x";
        fs::create_symlink(root / "other" / "c.gguf", root / "models" / "out.gguf");
    }
    [[nodiscard]] std::string at(const char* name) const {
        return fs::canonical(root / name).string();
    }
    test::TestFolder folder;
    fs::path root = folder.path();
    std::string models = (root / "models").string();
};

}  // namespace

TEST_CASE("a path below the folder is used as it is, another one is looked for by its name") {
    const Models m;
    CHECK(path_below(m.models, m.at("models/deep/b.gguf")).value() == m.at("models/deep/b.gguf"));
    CHECK(path_below(m.models, "/elsewhere/a.gguf").value() == m.at("models/a.gguf"));
    CHECK(path_below(m.models, "/elsewhere/deep/").value() == m.at("models/deep"));
    CHECK(path_below(m.models, "").value().empty());
}

TEST_CASE("nothing leads out of the folder") {
    const Models m;
    for (const std::string& path :
         {m.at("other/c.gguf"), m.models + "/../other/c.gguf", m.models + "/out.gguf",
          std::string{"/x/.."}, std::string{"/x/missing.gguf"}, m.models}) {
        CAPTURE(path);
        const auto found = path_below(m.models, path);
        REQUIRE_FALSE(found.ok());
        CHECK(found.error().code == Errc::BadFile);
        CHECK(found.error().what.find(path) != std::string::npos);
        CHECK(found.error().what.find(m.models) != std::string::npos);
    }
}

TEST_CASE("no link in a model's folder or among the shards of a split model leads out") {
    const Models m;
    const fs::path models = m.root / "models";
    CHECK(path_below(m.models, m.at("models/deep")).ok());
    fs::create_symlink(models / "a.gguf", models / "deep" / "near.gguf");
    CHECK(path_below(m.models, m.at("models/deep")).ok());
    fs::create_symlink(m.root / "other" / "c.gguf", models / "deep" / "far.gguf");
    for (const std::string& path : {m.at("models/deep"), std::string{"/elsewhere/deep"}}) {
        const auto found = path_below(m.models, path);
        REQUIRE_FALSE(found.ok());
        CHECK(found.error().code == Errc::BadFile);
        CHECK(found.error().what.find("far.gguf' is a link that leads out of --models") !=
              std::string::npos);
    }
    // A file beside them is of no model folder.
    CHECK(path_below(m.models, m.at("models/deep/b.gguf")).ok());
    std::ofstream{models / "s-00001-of-00002.gguf"} << "x";
    const std::string shard = m.at("models/s-00001-of-00002.gguf");
    CHECK(path_below(m.models, shard).ok());  // the other one is missing, which its reader says
    fs::create_symlink(m.root / "other" / "c.gguf", models / "s-00002-of-00002.gguf");
    CHECK(path_below(m.models, shard).error().code == Errc::BadFile);
}

TEST_CASE("an assignment gets the paths and cores of the agent's machine") {
    const Models m;
    StageAssignment assignment;
    assignment.model.model = "/elsewhere/a.gguf";
    assignment.model.copy = "/cache/a.packed";
    assignment.stages = {{.id = StageId{1}, .layers = {0, 2}}};
    assignment.cores = {0, 1, 5};
    assignment.threads = 3;
    const auto checked = assignment_check(m.models, {7, 3})(encode(assignment));
    REQUIRE(checked.ok());
    const StageAssignment here = decode_assignment(checked.value()).value();
    CHECK(here.model.model == m.at("models/a.gguf"));
    CHECK(here.model.copy.empty());
    CHECK(here.cores == std::vector<int>{7, 3, 3});
    assignment.parts.draft = "/elsewhere/missing.gguf";
    CHECK(assignment_check(m.models, {0})(encode(assignment)).error().code == Errc::BadFile);
    CHECK(assignment_check(m.models, {0})({}).error().code == Errc::Protocol);
}
