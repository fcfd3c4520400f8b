// The few functions of a C library that kernels and their sweeps call, for a static Linux program on aarch64 that is linked without one.
// Building a whole library took more than a minute of a processor.
//
// A function that a sweep never calls ends the process with its name. Compile with -ffreestanding -fno-builtin.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

extern "C" {

int program(int count, char** words) __asm__("main");
void exit(int status);
void* memcpy(void* to, const void* from, size_t bytes);

void* stdout = reinterpret_cast<void*>(1);
void* stderr = reinterpret_cast<void*>(2);
}

namespace {

constexpr long kClose = 57, kWrite = 64, kClockGettime = 113, kFutex = 98, kGetpid = 172, kExitGroup = 94;
constexpr long kMunmap = 215, kMmap = 222, kMprotect = 226, kMadvise = 233;
constexpr int kNoSuchCall = 38, kNoMemory = 12, kFailed = 70;
constexpr size_t kPage = 4096;

long system_call(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0, long f = 0) {
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  register long x4 __asm__("x4") = e;
  register long x5 __asm__("x5") = f;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory", "cc");
  return x0;
}

int last_error = 0;

long checked(long result) {
  if (result >= 0 || result < -4095) return result;
  last_error = static_cast<int>(-result);
  return -1;
}

char kept[1 << 20];
size_t kept_bytes = 0;

void write_all(int file, const char* from, size_t bytes) {
  while (bytes > 0) {
    const long done = system_call(kWrite, file, reinterpret_cast<long>(from), static_cast<long>(bytes));
    if (done <= 0) system_call(kExitGroup, kFailed);
    from += done;
    bytes -= static_cast<size_t>(done);
  }
}

void flush() {
  write_all(1, kept, kept_bytes);
  kept_bytes = 0;
}

size_t length(const char* text) {
  size_t found = 0;
  while (text[found] != 0) ++found;
  return found;
}

[[noreturn]] void never(const char* name) {
  write_all(2, name, length(name));
  write_all(2, ": bare.cpp lacks it\n", 20);
  for (;;) system_call(kExitGroup, kFailed);
}

// The header before allocated memory: the mapping in which it lies.
struct Mapping {
  char* begin;
  size_t mapped, bytes;
};

Mapping* mapping_of(void* memory) { return static_cast<Mapping*>(memory) - 1; }

void* mapped(size_t bytes, size_t alignment) {
  const size_t whole = (bytes + alignment + sizeof(Mapping) + kPage - 1) / kPage * kPage;
  const long made = system_call(kMmap, 0, static_cast<long>(whole), 3, 0x22, -1, 0);
  if (made < 0 && made >= -4095) return nullptr;
  const uintptr_t at = (static_cast<uintptr_t>(made) + sizeof(Mapping) + alignment - 1) / alignment * alignment;
  void* memory = reinterpret_cast<void*>(at);
  *mapping_of(memory) = {reinterpret_cast<char*>(made), whole, bytes};
  return memory;
}

struct Text {
  char* to;
  size_t room, written;

  void add(char letter) {
    if (written + 1 < room) to[written] = letter;
    ++written;
  }

  void add_number(long value) {
    char digits[24];
    int count = 0;
    unsigned long left = value < 0 ? 0ul - static_cast<unsigned long>(value) : static_cast<unsigned long>(value);
    do digits[count++] = static_cast<char>('0' + left % 10);
    while ((left /= 10) != 0);
    if (value < 0) add('-');
    while (count > 0) add(digits[--count]);
  }
};

// Formats %s, %d and %.0f of whole numbers, which sweeps write.
int format(char* to, size_t room, const char* how, va_list values) {
  Text text = {to, room, 0};
  for (; *how != 0; ++how) {
    if (*how != '%') {
      text.add(*how);
    } else if (how[1] == 's') {
      for (const char* word = va_arg(values, const char*); *word != 0; ++word) text.add(*word);
      ++how;
    } else if (how[1] == 'd') {
      text.add_number(va_arg(values, int));
      ++how;
    } else if (how[1] == '.' && how[2] == '0' && how[3] == 'f') {
      text.add_number(static_cast<long>(va_arg(values, double)));
      how += 3;
    } else {
      never(how);
    }
  }
  if (room > 0) to[text.written < room ? text.written : room - 1] = 0;
  return static_cast<int>(text.written);
}

const unsigned long* facts = nullptr;

unsigned long fact(unsigned long name) {
  for (const unsigned long* at = facts; at[0] != 0; at += 2) {
    if (at[0] == name) return at[1];
  }
  return 0;
}

struct ProgramHeader {
  uint32_t kind, flags;
  uint64_t offset, address, physical, file_bytes, bytes, alignment;
};

// A thread: its variables lie after 16 bytes at the thread pointer. The kernel sets `number` to 0 at its end, and wakes.
struct Thread {
  alignas(64) char variables[4096];
  volatile int number;
};

Thread first_thread;

void fill(Thread& thread) {
  constexpr unsigned long kHeaders = 3, kCount = 5;
  constexpr uint32_t kThreadVariables = 7;
  const ProgramHeader* headers = reinterpret_cast<const ProgramHeader*>(fact(kHeaders));
  for (unsigned long at = 0; at < fact(kCount); ++at) {
    const ProgramHeader& header = headers[at];
    if (header.kind != kThreadVariables) continue;
    const size_t before = header.alignment > 16 ? header.alignment : 16;
    if (header.alignment > 64 || before + header.bytes > sizeof thread.variables) never("thread variables");
    memcpy(thread.variables + before, reinterpret_cast<const void*>(header.address), header.file_bytes);
  }
}

constexpr size_t kStack = 8 << 20;

// The data that a new thread takes from its stack.
struct Task {
  void* (*run)(void*);
  void* argument;
};

}  // namespace

extern "C" {

extern void (*__init_array_start[])() __attribute__((weak));
extern void (*__init_array_end[])() __attribute__((weak));

__attribute__((used)) void begin(long* stack) {
  char** words = reinterpret_cast<char**>(stack + 1);
  char** after = words + stack[0] + 1;
  while (*after != nullptr) ++after;
  facts = reinterpret_cast<const unsigned long*>(after + 1);
  fill(first_thread);
  __asm__ volatile("msr tpidr_el0, %0" : : "r"(first_thread.variables));
  for (auto each = __init_array_start; each != __init_array_end; ++each) (*each)();
  exit(program(static_cast<int>(stack[0]), words));
}

__asm__(".globl _start\n_start:\n  mov x29, #0\n  mov x0, sp\n  b begin\n");

// Begins a thread on a stack with a Task on top: clone(0x3d0f00, stack, number, thread pointer, number).
long spawn(void* stack, void* variables, volatile int* number);
__asm__(
    "spawn:\n  mov x3, x1\n  mov x4, x2\n  mov x1, x0\n  mov x0, #0x0f00\n  movk x0, #0x3d, lsl #16\n"
    "  mov x8, #220\n  svc 0\n  cbz x0, 1f\n  ret\n"
    "1:\n  ldp x1, x0, [sp], #16\n  mov x29, #0\n  blr x1\n  mov x0, #0\n  mov x8, #93\n  svc 0\n");

int pthread_create(Thread** made, const void*, void* (*run)(void*), void* argument) {
  char* room = static_cast<char*>(mapped(sizeof(Thread) + kStack, 64));
  if (room == nullptr) return kNoMemory;
  Thread* thread = reinterpret_cast<Thread*>(room);
  fill(*thread);
  Task* task = reinterpret_cast<Task*>((reinterpret_cast<uintptr_t>(room) + sizeof(Thread) + kStack) / 16 * 16) - 1;
  *task = {run, argument};
  *made = thread;
  const long number = spawn(task, thread->variables, &thread->number);
  return number < 0 ? static_cast<int>(-number) : 0;
}

int pthread_join(Thread* thread, void**) {
  for (int seen = thread->number; seen != 0; seen = thread->number) {
    system_call(kFutex, reinterpret_cast<long>(&thread->number), 0, seen);
  }
  return 0;
}

long syscall(long number, long a, long b, long c, long d, long e, long f) {
  return checked(system_call(number, a, b, c, d, e, f));
}

void exit(int status) {
  flush();
  for (;;) system_call(kExitGroup, status);
}

void* memcpy(void* to, const void* from, size_t bytes) {
  for (size_t at = 0; at < bytes; ++at) static_cast<char*>(to)[at] = static_cast<const char*>(from)[at];
  return to;
}

void* memmove(void* to, const void* from, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from) >= bytes) return memcpy(to, from, bytes);
  for (size_t at = bytes; at-- > 0;) static_cast<char*>(to)[at] = static_cast<const char*>(from)[at];
  return to;
}

void* memset(void* to, int value, size_t bytes) {
  for (size_t at = 0; at < bytes; ++at) static_cast<char*>(to)[at] = static_cast<char>(value);
  return to;
}

int memcmp(const void* one, const void* other, size_t bytes) {
  const unsigned char *left = static_cast<const unsigned char*>(one), *right = static_cast<const unsigned char*>(other);
  for (size_t at = 0; at < bytes; ++at) {
    if (left[at] != right[at]) return left[at] - right[at];
  }
  return 0;
}

int bcmp(const void* one, const void* other, size_t bytes) { return memcmp(one, other, bytes); }

size_t strlen(const char* text) { return length(text); }

int strncmp(const char* one, const char* other, size_t most) {
  for (size_t at = 0; at < most; ++at) {
    if (one[at] != other[at] || one[at] == 0) {
      return static_cast<unsigned char>(one[at]) - static_cast<unsigned char>(other[at]);
    }
  }
  return 0;
}

void* malloc(size_t bytes) { return mapped(bytes, 64); }

void* aligned_alloc(size_t alignment, size_t bytes) { return mapped(bytes, alignment < 64 ? 64 : alignment); }

void* calloc(size_t count, size_t size) { return mapped(count * size, 64); }

void free(void* memory) {
  if (memory == nullptr) return;
  const Mapping found = *mapping_of(memory);
  system_call(kMunmap, reinterpret_cast<long>(found.begin), static_cast<long>(found.mapped));
}

void* realloc(void* memory, size_t bytes) {
  void* made = malloc(bytes);
  if (memory == nullptr || made == nullptr) return made;
  const size_t before = mapping_of(memory)->bytes;
  memcpy(made, memory, before < bytes ? before : bytes);
  free(memory);
  return made;
}

int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  *memory = mapped(bytes, alignment < 64 ? 64 : alignment);
  return *memory == nullptr ? kNoMemory : 0;
}

size_t fwrite(const void* from, size_t size, size_t count, void* stream) {
  const size_t bytes = size * count;
  if (stream != stdout) {
    write_all(2, static_cast<const char*>(from), bytes);
    return count;
  }
  if (kept_bytes + bytes > sizeof kept) flush();
  if (bytes > sizeof kept) {
    write_all(1, static_cast<const char*>(from), bytes);
  } else {
    memcpy(kept + kept_bytes, from, bytes);
    kept_bytes += bytes;
  }
  return count;
}

int snprintf(char* to, size_t room, const char* how, ...) {
  va_list values;
  va_start(values, how);
  const int written = format(to, room, how, values);
  va_end(values);
  return written;
}

int fprintf(void* stream, const char* how, ...) {
  char line[1024];
  va_list values;
  va_start(values, how);
  format(line, sizeof line, how, values);
  va_end(values);
  return static_cast<int>(fwrite(line, 1, length(line), stream));
}

int* __errno_location() { return &last_error; }
unsigned long getauxval(unsigned long name) { return fact(name); }
int getpid() { return static_cast<int>(system_call(kGetpid)); }
int close(int file) { return static_cast<int>(checked(system_call(kClose, file))); }
int clock_gettime(int clock, void* to) {
  return static_cast<int>(checked(system_call(kClockGettime, clock, reinterpret_cast<long>(to))));
}
int madvise(void* begin, size_t bytes, int how) {
  return static_cast<int>(checked(system_call(kMadvise, reinterpret_cast<long>(begin), static_cast<long>(bytes), how)));
}
int mprotect(void* begin, size_t bytes, int how) {
  return static_cast<int>(checked(system_call(kMprotect, reinterpret_cast<long>(begin), static_cast<long>(bytes), how)));
}
int munmap(void* begin, size_t bytes) {
  return static_cast<int>(checked(system_call(kMunmap, reinterpret_cast<long>(begin), static_cast<long>(bytes))));
}
void* mmap(void* at, size_t bytes, int rights, int how, int file, long offset) {
  const long made = system_call(kMmap, reinterpret_cast<long>(at), static_cast<long>(bytes), rights, how, file, offset);
  return reinterpret_cast<void*>(checked(made));
}

// There is one processor, and no thread has a clock of its own.
int sched_getcpu() { return 0; }
int sched_yield() { return 0; }
int sched_getaffinity(int, size_t, void*) { return -1; }
long sysconf(int) { return 1; }
unsigned long pthread_self() { return 1; }
int pthread_getcpuclockid(unsigned long, int*) { return kNoSuchCall; }
int pthread_attr_init(void*) { return 0; }
int pthread_attr_destroy(void*) { return 0; }
int pthread_attr_setstacksize(void*, size_t) { return 0; }
int clock_getcpuclockid(int, int*) { return kNoSuchCall; }

#define TS_NEVER(name) \
  void name() { never(#name); }
TS_NEVER(__sched_cpucount)
TS_NEVER(fcntl)
TS_NEVER(mremap)
TS_NEVER(poll)
TS_NEVER(recv)
TS_NEVER(send)
TS_NEVER(shutdown)
}
