#include "launch/cluster/starter.hpp"

#include <string>

#include <doctest/doctest.h>

using namespace paceline;

namespace {

const StarterVariables kSrun{{"SLURM_PROCID", "1"},
                             {"SLURM_NTASKS", "2"},
                             {"SLURM_LOCALID", "0"},
                             {"SLURM_STEP_ID", "0"},
                             {"SLURM_STEP_NODELIST", "n[001-003,7],gpu"}};
const StarterVariables kMpirun{{"OMPI_COMM_WORLD_RANK", "0"},
                               {"OMPI_COMM_WORLD_SIZE", "3"},
                               {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                               {"PACELINE_MEET", "a:47601"}};
const StarterVariables kTorchrun{
    {"RANK", "1"},        {"WORLD_SIZE", "2"},      {"LOCAL_RANK", "0"},
    {"MASTER_ADDR", "a"}, {"MASTER_PORT", "29500"}, {"TORCHELASTIC_RUN_ID", "x"}};

StarterVariables with(StarterVariables variables,
                      const std::string& name,
                      const std::string& value) {
    variables[name] = value;
    return variables;
}

StarterPlace place_of(const StarterVariables& variables) {
    const auto place = read_starter("", "", variables);
    REQUIRE(place.ok());
    REQUIRE(place.value().has_value());
    return *place.value();
}

std::string refusal(const StarterVariables& variables,
                    const std::string& node = "",
                    const std::string& meet = "") {
    const auto place = read_starter(node, meet, variables);
    REQUIRE_FALSE(place.ok());
    CHECK(place.error().code == Errc::BadArgument);
    return place.error().what;
}

}  // namespace

TEST_CASE("each starter says rank, size and where rank 0 is") {
    const StarterPlace srun = place_of(kSrun);
    CHECK(srun.starter == "srun");
    CHECK(srun.rank == 1);
    CHECK(srun.size == 2);
    CHECK(srun.meet.text() == "n001:47600");
    const StarterPlace mpirun = place_of(kMpirun);
    CHECK(mpirun.rank == 0);
    CHECK(mpirun.size == 3);
    CHECK(mpirun.meet.text() == "a:47601");
    // Its store listens on MASTER_PORT.
    CHECK(place_of(kTorchrun).meet.text() == "a:47600");
}

TEST_CASE("--node and --meet count more than any starter") {
    const auto place = read_starter("0/4", "b", kSrun);
    REQUIRE(place.ok());
    CHECK(place.value()->size == 4);
    CHECK(place.value()->rank == 0);
    CHECK(place.value()->meet.text() == "b:47600");
}

TEST_CASE("without a starter, or with one task, there is one machine") {
    CHECK_FALSE(read_starter("", "", {}).value().has_value());
    CHECK_FALSE(read_starter("", "", with(with(kSrun, "SLURM_NTASKS", "1"), "SLURM_PROCID", "0"))
                    .value()
                    .has_value());
    // Within salloc or sbatch, but not started by srun.
    StarterVariables allocation = kSrun;
    allocation.erase("SLURM_STEP_ID");
    CHECK_FALSE(read_starter("", "", allocation).value().has_value());
    // A variable that other programs use.
    CHECK_FALSE(read_starter("", "", {{"RANK", "1"}}).value().has_value());
}

TEST_CASE("refusals name variable and value") {
    CHECK(refusal(with(kSrun, "SLURM_LOCALID", "1"))
              .find("SLURM_LOCALID is 1: srun has started two "
                    "tasks on this machine") == 0);
    StarterVariables without = kMpirun;
    without.erase("PACELINE_MEET");
    CHECK(refusal(without).find("mpirun does not say where rank 0 is") == 0);
    StarterVariables both = kSrun;
    both.insert(kTorchrun.begin(), kTorchrun.end());
    CHECK(refusal(both).find("SLURM_PROCID = 1 and RANK = 1: two starters") == 0);
    CHECK(refusal(with(kSrun, "SLURM_PROCID", "one")) ==
          "SLURM_PROCID is 'one', expected a number");
    CHECK(refusal(with(kSrun, "SLURM_PROCID", "2")) == "SLURM_PROCID is 2, SLURM_NTASKS is 2");
    CHECK(refusal({}, "2/2", "a").find("--node: '2/2' is not K/N") == 0);
    CHECK(refusal({}, "1", "a").find("--node: '1' is not K/N") == 0);
    CHECK(refusal({}, "1/2").find("--node needs --meet") == 0);
}

TEST_CASE("the first host of a list keeps its zeros") {
    CHECK(first_host("n[001-003,7],gpu").value() == "n001");
    CHECK(first_host("gpu-r[1-2]s[3,4]").value() == "gpu-r1s3");
    CHECK(first_host("a,b").value() == "a");
    CHECK(first_host("a").value() == "a");
    CHECK_FALSE(first_host("").ok());
    CHECK_FALSE(first_host("n[1").ok());
    CHECK_FALSE(first_host("n[]").ok());
}
