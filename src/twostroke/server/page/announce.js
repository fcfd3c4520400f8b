// Announcements for screen readers: few things, one at a time, never figures that change by themselves.

export function announce(words) {
  document.getElementById("announcer").textContent = words;
}
