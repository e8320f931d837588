// [CHP-n] and [DEV-n]: the entry, the table, devices.
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <set>

#include "actions.h"

namespace kit {

namespace {

int32_t device_count() {
  int32_t count = 0;
  ok(chip().device.count(&count), "count");
  return count;
}

fl_device_properties properties(int32_t device) {
  fl_device_properties p{};
  p.size = sizeof p;
  ok(chip().device.properties(device, &p), "properties");
  return p;
}

std::string identities() {
  std::string all;
  for (int32_t d = 0; d < device_count(); ++d) all += std::string(properties(d).identity) + "\n";
  return all;
}

// Runs in a fork and returns its exit status; -1 when a signal ended it.
int in_fork(const std::function<int()>& body) {
  pid_t pid = fork();
  if (pid == 0) {
    alarm(20);
    int status;
    try {
      status = body();
    } catch (const std::exception&) {
      status = 99;
    }
    _exit(status);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

KIT_TEST("CHP-1", "the chip's name is lower-case letters, digits and '_', a letter first") {
  const char* name = chip().table->name;
  REQUIRE(name && name[0] >= 'a' && name[0] <= 'z', "the name is \"%s\"", name ? name : "NULL");
  for (const char* p = name; *p; ++p)
    REQUIRE((*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9') || *p == '_', "the name \"%s\" has a '%c'",
            name, *p);
  REQUIRE(chip().table->release && *chip().table->release, "the chip has no release");
}

KIT_TEST("CHP-2", "an unknown extension gives NULL") {
  if (chip().table->size < sizeof(fl_chip) || !chip().table->extension)
    not_applicable("the chip has no extensions");
  REQUIRE(!chip().table->extension("kit.no_such_extension", 1), "an unknown name gave a table");
}

KIT_TEST("CHP-3", "fl_chip_entry starts no device and no thread, and gives the same table again") {
  REQUIRE(thread_count() == 1, "after loading and counting devices the process has %d threads",
          thread_count());
  REQUIRE(chip().entry(FL_ABI_VERSION, host()) == chip().table, "the second call gave another table");
  REQUIRE(thread_count() == 1, "the second call started a thread");
}

KIT_TEST("CHP-4", "a host of the same major version is never refused for its minor, nor for a longer table") {
  struct {
    fl_host host;
    void* later[8];  // what a newer host has
  } newer{*host(), {}};
  newer.host.size = sizeof newer;
  newer.host.version = FL_ABI_MAJOR << 16 | 99;
  run_case("newer host", [&] {
    REQUIRE(chip().entry(newer.host.version, &newer.host), "refused version 1.99: %s", chip_error().c_str());
  });
  run_case("oldest host", [&] {
    fl_host oldest = *host();
    oldest.version = FL_ABI_MAJOR << 16;
    REQUIRE(chip().entry(oldest.version, &oldest), "refused version 1.0: %s", chip_error().c_str());
  });
  REQUIRE(chip().entry(FL_ABI_VERSION, host()), "refused this host");
}

KIT_TEST("DEV-1", "the number of devices does not change") {
  int32_t before = device_count();
  {
    Session session;
  }
  REQUIRE(device_count() == before, "%d devices before a device was opened, %d after", before,
          device_count());
}

KIT_TEST("DEV-2", "count and properties start no device; a process that called only them may fork") {
  // Its group's earlier test opens a device: the question is one for a fresh process.
  char self[4096];
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  if (n <= 0) not_applicable("no /proc here to find this program");
  int status = in_fork([&] {
    self[n] = 0;
    execl(self, self, "--fork-check", library_path().c_str(), static_cast<char*>(nullptr));
    return 98;
  });
  REQUIRE(status == 0, "%s",
          status == 97 ? "count or properties started a thread"
                       : "a device did not work in a fork of a process that had called only them");
}

KIT_TEST("DEV-3", "a device outside 0 <= device < count gives FL_INVALID") {
  int32_t n = device_count();
  ok(chip().device.open(0), "open");
  for (int32_t bad : {-1, n, n + 1000, INT32_MAX, INT32_MIN}) {
    run_case(text("device %d of %d", bad, n), [&] {
      fl_device_properties p{};
      p.size = sizeof p;
      expect_status(chip().device.properties(bad, &p), FL_INVALID, "properties");
      expect_status(chip().device.open(bad), FL_INVALID, "open");
      void* address = nullptr;
      expect_status(chip().memory.malloc(bad, 64, &address), FL_INVALID, "malloc");
      uint64_t free_bytes = 0, total = 0;
      expect_status(chip().memory.info(bad, &free_bytes, &total), FL_INVALID, "info");
      fl_stream stream = nullptr;
      expect_status(chip().stream.create(bad, 0, &stream), FL_INVALID, "stream create");
      fl_event event = nullptr;
      expect_status(chip().stream.event_create(bad, 0, &event), FL_INVALID, "event create");
    });
  }
}

KIT_TEST("DEV-4", "identity is unique among the chip's devices and stable across processes") {
  std::set<std::string> seen;
  for (int32_t d = 0; d < device_count(); ++d) {
    std::string identity = properties(d).identity;
    REQUIRE(!identity.empty(), "device %d has no identity", d);
    REQUIRE(seen.insert(identity).second, "two devices have the identity %s", identity.c_str());
  }
  int ends[2];  // what it writes is small: the pipe holds it until it is read
  REQUIRE(pipe(ends) == 0, "cannot make a pipe");
  int status = in_fork([&] {
    dup2(ends[1], STDOUT_FILENO);
    return execl("/proc/self/exe", "fl-kit", "--devices", library_path().c_str(), nullptr);
  });
  ::close(ends[1]);
  FILE* other = fdopen(ends[0], "r");
  REQUIRE(other && status == 0, "another process cannot list the devices: status %d", status);
  std::string theirs;
  char line[512];
  while (fgets(line, sizeof line, other)) {
    std::string l = line;
    theirs += l.substr(l.rfind('\t') + 1);
  }
  fclose(other);
  REQUIRE(theirs == identities(), "here: %s, in another process: %s", identities().c_str(), theirs.c_str());
}

KIT_TEST("DEV-5", "opening a device again does nothing") {
  Session session;
  Random random(1);
  Array before = Array::random(random, FL_F32, {100});
  Tensor t = session.put(before);
  ok(chip().device.open(0), "the second open");
  ok(chip().device.open(0), "the third open");
  REQUIRE(session.get(t).bytes == before.bytes, "memory changed");
}

KIT_TEST("DEV-6", "properties fills at most `size` bytes and describes the device") {
  struct {
    fl_device_properties p;
    char behind[64];
  } room;
  memset(&room, 0x5a, sizeof room);
  room.p.size = offsetof(fl_device_properties, total_memory);  // an older host's struct
  ok(chip().device.properties(0, &room.p), "properties");
  const char* bytes = reinterpret_cast<const char*>(&room);
  for (size_t i = offsetof(fl_device_properties, total_memory); i < sizeof room; ++i)
    REQUIRE(bytes[i] == 0x5a, "byte %zu was written, of %zu offered", i,
            offsetof(fl_device_properties, total_memory));
  fl_device_properties p = properties(0);
  REQUIRE(p.name[0] && memchr(p.name, 0, sizeof p.name), "the device has no name");
  REQUIRE(p.total_memory > 0, "total_memory is 0");
  REQUIRE(p.alignment >= 64 && (p.alignment & (p.alignment - 1)) == 0, "alignment is %u", p.alignment);
  for (unsigned d : claimed(FL_ENTRY_COPY, FL_ANY))
    REQUIRE(p.storage >> d & 1, "copy is claimed for %s, which `storage` lacks", dtype_name(d));
}

}  // namespace

// --fork-check: 0 when a device works in a fork of a process that called only count and properties.
int fork_check() {
  for (int32_t d = 0; d < device_count(); ++d) properties(d);
  if (thread_count() != 1) return 97;
  return in_fork([] {
    Session session;
    Random random(2);
    Array a = Array::random(random, FL_F32, {1000});
    Tensor t = session.put(a);
    return session.get(t).bytes == a.bytes ? 0 : 96;
  });
}

void print_devices() {
  for (int32_t d = 0; d < device_count(); ++d) {
    fl_device_properties p = properties(d);
    printf("%d\t%s\t%.1f GiB\t%s\n", d, p.name, static_cast<double>(p.total_memory) / (1 << 30), p.identity);
  }
}

}  // namespace kit
