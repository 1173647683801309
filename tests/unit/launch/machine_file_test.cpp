// A described machine: what is read, and how mistakes are named.
#include "launch/config/machine_file.hpp"

#include <fstream>
#include <sstream>
#include <string>

#include <doctest/doctest.h>

#include "launch/config/field.hpp"
#include "tests/support/source_tree.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test file

namespace {

const std::string kNode = "[[numa]]\nnode = 0\ncores = \"0-3\"\n";
const std::string kTwo = "[[gpu]]\nname = \"A\"\ncount = 2\nmemory_gib = 1.5\nnuma = 0\n";
const std::string kLink = "[[link]]\ngpus = \"all\"\nkind = \"pcie\"\ngb_per_second = 25\n";

void refuses(const std::string& text, const std::string& part, int line) {
    CAPTURE(text);
    const Result<GpuMachine> machine = parse_machine_file(text, "m.toml");
    REQUIRE(!machine.ok());
    CAPTURE(machine.error().what);
    CHECK(machine.error().what.find(part) != std::string::npos);
    CHECK(machine.error().what.rfind("m.toml:" + std::to_string(line), 0) == 0);
}

std::string page() {
    std::ifstream file{testing::source_tree() + "/docs/multi-gpu.md"};
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

template <class Table>
void check_page_names_the_keys_of(const std::string& text) {
    Table table;
    for (const Field& field : fields_of(table)) {
        CAPTURE(field.key);
        CHECK(text.find("`" + std::string{field.key} + "`") != std::string::npos);
    }
}

}  // namespace

TEST_CASE(
    "each of several machines has the GPUs of the file, and between two of them is the network") {
    const std::string network = "[[link]]\nkind = \"network\"\ngb_per_second = 12.5\nus = 25\n";
    const std::string nodes = "[[node]]\nname = \"a\"\n[[node]]\nname = \"b\"\n";
    const GpuMachine machine =
        parse_machine_file(kNode + kTwo + kLink + network + nodes, "m.toml").value();
    REQUIRE(machine.gpus.size() == 4);
    CHECK(machine.gpu_name(1) == "a/cuda:1");
    CHECK(machine.gpu_name(2) == "b/cuda:0");
    CHECK(machine.reach(0, 1));
    CHECK(machine.reach(2, 3));
    CHECK_FALSE(machine.reach(1, 2));
    CHECK(to_text(machine.link(0, 1)) == "pcie, 25 GB/s");
    CHECK(to_text(machine.link(2, 3)) == "pcie, 25 GB/s");
    CHECK(to_text(machine.link(3, 0)) == "network, 12.5 GB/s, 25 us");
    refuses(kNode + kTwo + kLink + nodes + "[[node]]\nname = \"b\"\n", "is that of another", 18);
    refuses(
        kNode + kTwo + "[[link]]\ngpus = \"all\"\nkind = \"pcie\"\ngb_per_second = 25\nus = 1\n",
        "is of kind = \"network\"", 13);
}

TEST_CASE("a described machine has its GPUs in order, with memory, near cores and links") {
    const Result<GpuMachine> read = parse_machine_file(
        "[machine]\nname = \"two\"\n" + kNode + "[[numa]]\nnode = 1\ncores = \"8,9\"\n" + kTwo +
            "[[gpu]]\nname = \"B\"\nmemory_gib = 2\nnuma = 1\n"
            "[[link]]\ngpus = [0, 1]\nkind = \"nvlink\"\ngb_per_second = 300\n"
            "[[link]]\ngpus = [2, 0]\nkind = \"host\"\ngb_per_second = 8\n"
            "[[link]]\ngpus = [1, 2]\nkind = \"host\"\ngb_per_second = 9.5\n",
        "m.toml");
    REQUIRE(read.ok());
    const GpuMachine& machine = read.value();
    CHECK(machine.name == "two");
    REQUIRE(machine.gpus.size() == 3);
    CHECK(machine.gpus[1].name == "A");
    CHECK(machine.gpus[1].memory_bytes == std::uint64_t{3} << 29);
    CHECK(machine.gpus[1].near_cores == std::vector<int>{0, 1, 2, 3});
    CHECK(machine.gpus[2].near_cores == std::vector<int>{8, 9});
    CHECK(machine.cores() == std::vector<int>{0, 1, 2, 3, 8, 9});
    CHECK(to_text(machine.link(1, 0)) == "nvlink, 300 GB/s");
    CHECK(to_text(machine.link(0, 2)) == "host, 8 GB/s");
    CHECK(to_text(machine.link(2, 1)) == "host, 9.5 GB/s");
    CHECK(to_text(GpuMachine{}.link(0, 1)) == "unknown");
}

TEST_CASE("what is wrong with a machine is named with file, line, key and value") {
    refuses(kNode + kTwo, "link is missing between GPUs 0 and 1", 1);
    refuses(kNode + kTwo + kLink + kLink, "gpus = \"all\" gives GPUs 0 and 1 a second link", 14);
    refuses(kNode + kTwo + "[[link]]\ngpus = [0, 7]\nkind = \"pcie\"\ngb_per_second = 1\n",
            "names GPU 7, there are 2", 10);
    refuses(kNode + kTwo + "[[link]]\ngpus = [1, 1]\nkind = \"pcie\"\ngb_per_second = 1\n",
            "names a GPU twice", 10);
    refuses(kNode + kTwo + "[[link]]\ngpus = [0]\nkind = \"pcie\"\ngb_per_second = 1\n",
            "two or more GPUs", 10);
    refuses(kNode + kTwo + "[[link]]\ngpus = \"all\"\nkind = \"usb\"\ngb_per_second = 1\n",
            "kind = \"usb\" is not allowed", 11);
    refuses(kNode + kTwo + "[[link]]\ngpus = \"all\"\nkind = \"pcie\"\ngb_per_second = 0\n",
            "gb_per_second = 0", 12);
    refuses(kTwo + kLink, "numa = 0 has no [[numa]] table", 5);
    refuses(kNode + kNode + kTwo + kLink, "node = 0 is described twice", 5);
    refuses("[[numa]]\nnode = 0\ncores = \"3-x\"\n", "must be a list of cores", 3);
    refuses(kNode + "[[gpu]]\nname = \"A\"\nnuma = 0\n", "memory_gib is missing", 4);
    refuses(kNode + "[[gpu]]\nname = \"A\"\nmemory_gb = 24\nnuma = 0\n", "memory_gib", 6);
    refuses(kNode + "[[gpus]]\nname = \"A\"\n", "gpus", 4);
    refuses(kNode + "[[gpu]]\nname = \"A\"\ncount = 65\nmemory_gib = 1\nnuma = 0\n", "count = 65",
            6);
    refuses(kNode, "gpu is missing", 1);
}

TEST_CASE("docs/multi-gpu.md names every key that a machine's file may have") {
    const std::string text = page();
    check_page_names_the_keys_of<NumaTable>(text);
    check_page_names_the_keys_of<GpuTable>(text);
    check_page_names_the_keys_of<NodeTable>(text);
    check_page_names_the_keys_of<LinkTable>(text);
}
