#include "launch/placement/node_shares.hpp"

#include <string>

#include <doctest/doctest.h>

#include "launch/config/pipeline_config.hpp"

using namespace paceline;

namespace {

const std::vector<OtherMachine> kOne{{"b", 4}};
const std::vector<OtherMachine> kThree{{"b", 4}, {"c", 4}, {"d", 4}};

PipelineConfig pipeline(int segments, bool draft, const std::string& of_first = "") {
    std::string text = "[pipeline]\nname = \"test\"\n";
    for (int i = 1; i <= segments; ++i) {
        text += "[[stage]]\nname = \"s" + std::to_string(i) +
                "\"\nrole = \"segment\"\nlayers = \"auto\"\n" + (i == 1 ? of_first : "");
    }
    if (draft)
        text +=
            "[[stage]]\nname = \"draft\"\nrole = \"draft\"\n[draft]\nsource = "
            "\"prompt-lookup\"\n";
    return parse_pipeline_config(text, "test.toml").value();
}

/// "s1: s2:b draft:".
std::string nodes(const PipelineConfig& config) {
    std::string text;
    for (const StageConfig& stage : config.stages) text += stage.name + ":" + stage.node + " ";
    return text;
}

}  // namespace

TEST_CASE("segments stay in order, in even shares, and the draft beside the first") {
    CHECK(nodes(share_nodes(pipeline(2, true), kOne).value()) == "s1: s2:b draft: ");
    CHECK(nodes(share_nodes(pipeline(4, true), kOne).value()) == "s1: s2: s3:b s4:b draft: ");
    CHECK(nodes(share_nodes(pipeline(4, false), kThree).value()) == "s1: s2:b s3:c s4:d ");
    CHECK(nodes(share_nodes(pipeline(3, false), kOne).value()) == "s1: s2: s3:b ");
}

TEST_CASE("with one segment less than machines the draft has the last one") {
    CHECK(nodes(share_nodes(pipeline(1, true), kOne).value()) == "s1: draft:b ");
    CHECK(nodes(share_nodes(pipeline(3, true), kThree).value()) == "s1: s2:b s3:c draft:d ");
}

TEST_CASE("what the file says is kept, and without other machines nothing changes") {
    CHECK(nodes(share_nodes(pipeline(2, true, "node = \"b\"\n"), kThree).value()) ==
          "s1:b s2: draft: ");
    CHECK(nodes(share_nodes(pipeline(2, true), {}).value()) == "s1: s2: draft: ");
}

TEST_CASE("more machines than stages can use are refused with both numbers") {
    const auto shared = share_nodes(pipeline(1, false), kOne);
    REQUIRE_FALSE(shared.ok());
    CHECK(shared.error().what.find("test.toml: 2 machines are more than its 1 segment can use") ==
          0);
    CHECK_FALSE(share_nodes(pipeline(2, true), kThree).ok());
}

TEST_CASE("stages run where their node says, each with cores of its machine") {
    const PipelineConfig config = share_nodes(pipeline(2, true), kOne).value();
    const Placement placement = place(config, 8, {3, 5}, kOne).value();
    CHECK(placement.process_of(StageId{1}).machine == 0);
    CHECK(placement.process_of(StageId{2}).machine == 1);
    CHECK(placement.process_of(StageId{2}).cores == std::vector<int>{0, 1, 2, 3});
    CHECK(placement.process_of(StageId{2}).threads == 4);
    for (const int core : placement.process_of(StageId{1}).cores) CHECK((core == 3 || core == 5));
}

TEST_CASE("a node that is not there is refused by name") {
    const PipelineConfig config = pipeline(2, false, "node = \"x\"\n");
    const auto alone = place(config, 8, {0});
    REQUIRE_FALSE(alone.ok());
    CHECK(alone.error().what.find("[[stage]] \"s1\": node = \"x\" is not there; this run has one "
                                  "machine") != std::string::npos);
    const auto two = place(config, 8, {0}, kOne);
    REQUIRE_FALSE(two.ok());
    CHECK(two.error().what.find("the other machines are: b") != std::string::npos);
}
