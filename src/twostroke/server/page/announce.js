// Announcements for screen readers. They are few, come one at a time, and never contain figures that change by themselves.

export function announce(words) {
  document.getElementById("announcer").textContent = words;
}
