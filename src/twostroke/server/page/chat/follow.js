// Follows the newest line, whatever grows: text, figures, an error. After the reader scrolls up it follows no more.
const NEAR = 40;

export class Follower {
  constructor(scroller, content, button) {
    Object.assign(this, { scroller, button });
    this.following = true;
    this.top = 0;
    scroller.addEventListener("scroll", () => this.scrolled());
    button.addEventListener("click", () => {
      this.follow();
      scroller.focus();
    });
    const grown = new ResizeObserver(() => this.keep());
    grown.observe(content);
    grown.observe(scroller);
  }

  get below() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller;
    return scrollHeight - scrollTop - clientHeight;
  }

  scrolled() {
    // Only a way up ends it: text that came since the last scroll puts the end further down, and is no wish of the reader.
    if (this.below < NEAR) this.following = true;
    else if (this.scroller.scrollTop < this.top - 1) this.following = false;
    this.top = this.scroller.scrollTop;
    this.button.hidden = this.following || this.below < NEAR;
  }

  follow() {
    this.following = true;
    this.keep();
  }

  keep() {
    if (this.following) this.scroller.scrollTop = this.scroller.scrollHeight;
    this.top = this.scroller.scrollTop;
    this.button.hidden = this.following || this.below < NEAR;
  }
}
