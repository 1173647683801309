#include "runtime/simulation/cost_table.hpp"

#include <string>

#include <doctest/doctest.h>

namespace paceline {
namespace {

const std::string kHead =
    "stage\tfingerprint\tlayers\trows\tcontext\tthreads\tneighbours\tseconds\n";

double ask(const CostTable& table, const CostRecord& wanted) {
    const Result<double> seconds = table.seconds(wanted);
    REQUIRE_MESSAGE(seconds.ok(), seconds.error().what);
    return seconds.value();
}

TEST_CASE("a cost table is read, comments and all") {
    const auto table = CostTable::parse(
        "# measured on a quiet evening\n" + kHead + "\nverify\tm\t32\t4\t512\t8\t0\t0.04\r\n", "t");
    REQUIRE(table.ok());
    REQUIRE(table.value().records().size() == 1);
    const CostRecord& record = table.value().records().front();
    CHECK(record.stage == "verify");
    CHECK(record.layers == 32);
    CHECK(record.rows == 4);
    CHECK(record.context == 512);
    CHECK(record.threads == 8);
    CHECK(record.seconds == 0.04);
    CHECK(table.value().knows("verify", "m"));
    CHECK(!table.value().knows("verify", "n"));
}

TEST_CASE("between records times are interpolated, beyond them the nearest counts") {
    const CostTable table = CostTable::of({{"verify", "m", 8, 1, 0, 4, 0, 1.0},
                                           {"verify", "m", 8, 5, 0, 4, 0, 3.0},
                                           {"verify", "m", 8, 1, 100, 4, 0, 2.0},
                                           {"verify", "m", 8, 5, 100, 4, 0, 6.0}});
    CHECK(ask(table, {"verify", "m", 8, 1, 0, 4, 0}) == doctest::Approx(1.0));
    CHECK(ask(table, {"verify", "m", 8, 3, 0, 4, 0}) == doctest::Approx(2.0));
    CHECK(ask(table, {"verify", "m", 8, 3, 50, 4, 0}) == doctest::Approx(3.0));
    CHECK(ask(table, {"verify", "m", 8, 50, 1000, 4, 0}) == doctest::Approx(6.0));
}

TEST_CASE("a longer prefill than any that was measured takes longer in proportion") {
    const CostTable few = CostTable::of({{"prefill", "m", 0, 1, 0, 4, 0, 1.0}});
    CHECK(ask(few, {"prefill", "m", 0, 64, 0, 4, 0}) == doctest::Approx(1.0));
    CHECK(ask(few, {"prefill", "m", 0, 512, 0, 4, 0}) == doctest::Approx(8.0));
    const CostTable many = CostTable::of(
        {{"prefill", "m", 0, 64, 0, 4, 0, 1.0}, {"prefill", "m", 0, 256, 0, 4, 0, 2.0}});
    CHECK(ask(many, {"prefill", "m", 0, 160, 0, 4, 0}) == doctest::Approx(1.5));
    CHECK(ask(many, {"prefill", "m", 0, 512, 0, 4, 0}) == doctest::Approx(4.0));
}

TEST_CASE("time grows with the layers, and a record without layers stands for any number") {
    const CostTable table =
        CostTable::of({{"verify", "m", 8, 1, 0, 4, 0, 1.0}, {"draft", "d", 0, 1, 0, 4, 0, 0.5}});
    CHECK(ask(table, {"verify", "m", 4, 1, 0, 4, 0}) == doctest::Approx(0.5));
    CHECK(ask(table, {"draft", "d", 4, 1, 0, 4, 0}) == doctest::Approx(0.5));
}

TEST_CASE("threads and neighbours are those of the nearest record") {
    const CostTable table = CostTable::of({{"verify", "m", 0, 1, 0, 1, 0, 4.0},
                                           {"verify", "m", 0, 1, 0, 8, 0, 1.0},
                                           {"verify", "m", 0, 1, 0, 8, 2, 1.5}});
    CHECK(ask(table, {"verify", "m", 0, 1, 0, 2, 0}) == doctest::Approx(4.0));
    CHECK(ask(table, {"verify", "m", 0, 1, 0, 6, 0}) == doctest::Approx(1.0));
    CHECK(ask(table, {"verify", "m", 0, 1, 0, 8, 3}) == doctest::Approx(1.5));
}

TEST_CASE("a question that the table cannot answer is an error that names it") {
    const auto asked = CostTable::of({{"verify", "m", 0, 1, 0, 1, 0, 4.0}}).seconds({"draft", "x"});
    REQUIRE(!asked.ok());
    CHECK(asked.error().what.find("'draft'") != std::string::npos);
    CHECK(asked.error().what.find("'x'") != std::string::npos);
}

TEST_CASE("a mistake in a cost table is named with file, line and value") {
    const auto refuse = [](const std::string& text, const std::string& said) {
        CAPTURE(text);
        const auto table = CostTable::parse(text, "costs.tsv");
        REQUIRE(!table.ok());
        CHECK(table.error().code == Errc::BadFile);
        CHECK_MESSAGE(table.error().what.find(said) != std::string::npos, table.error().what);
    };
    refuse("", "costs.tsv: a cost table without records");
    refuse("verify\tm\t1\t1\t1\t1\t1\t1\n", "costs.tsv:1: the first line must name the columns");
    refuse(kHead + "verify\tm\t1\n", "costs.tsv:2: 3 fields, must be 8");
    refuse(kHead + "\tm\t1\t1\t1\t1\t1\t1\n", "costs.tsv:2: stage is empty");
    refuse(kHead + "v\tm\t1\t0\t1\t1\t1\t1\n", "costs.tsv:2: rows = '0'");
    refuse(kHead + "v\tm\tx\t1\t1\t1\t1\t1\n", "costs.tsv:2: layers = 'x'");
    refuse(kHead + "v\tm\t-1\t1\t1\t1\t1\t1\n", "layers = '-1'");
    refuse(kHead + "v\tm\t1\t1\t1\t1\t1\tnan\n", "seconds = 'nan'");
    refuse(kHead + "v\tm\t1\t1\t1\t1\t1\t-0.1\n", "seconds = '-0.1'");
    refuse(kHead + "v\tm\t1\t1\t1\t1\t1\t0.1s\n", "seconds = '0.1s'");
    refuse(kHead + "v\tm\t1\t1\t99999999999\t1\t1\t1\n", "context = '99999999999'");
}

}  // namespace
}  // namespace paceline
